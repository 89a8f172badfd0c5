//! Everything at once, for as long as you like: `SOAK_SECONDS=600 SOAK_SEED=1 cargo test --release -p
//! dataplane --test net soak -- --ignored --nocapture`. Continuous integration runs 60 seconds.

use std::time::{Duration, Instant};

use common::backend::{Health, State};
use common::hash::mix;
use dataplane::testkit::lab::service::name;
use dataplane::testkit::lab::world::{Setup, World};

use crate::second_chance::setup;

const CONNECTIONS: usize = 1_000;
const BACKENDS: u8 = 6;
const DIRECTORS: u8 = 3;
const PACE: Duration = Duration::from_secs(2);

/// A generator of changes; the same seed makes the same choices.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u8) -> u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        u8::try_from(mix(self.0) % u64::from(limit)).unwrap()
    }
}

/// Counters of the events.
#[derive(Debug, Default)]
struct Diary {
    changes: usize,
    /// Changes that were skipped because they would have cut connections according to `tablegen diff`.
    refused: usize,
    directors_killed: usize,
    opened: usize,
    broken: usize,
}

fn soak(seed: u64, time: Duration, second_chance: bool) -> anyhow::Result<Diary> {
    let mut world = World::new(Setup { second_chance, seed, ..setup(DIRECTORS, BACKENDS, 4) })?;
    let (mut chance, mut diary, start) = (Chance(seed), Diary::default(), Instant::now());
    world.open(CONNECTIONS)?;
    diary.opened = CONNECTIONS;
    while start.elapsed() < time {
        let round = Instant::now();
        change(&mut world, &mut chance, &mut diary)?;
        let broken = world.exchange().broken();
        if broken > diary.broken && second_chance {
            eprintln!("broken by change {}: {}", diary.changes, world.counts());
        }
        diary.broken = diary.broken.max(broken);
        // Some clients disconnect and others connect.
        let before = world.by_backend().values().sum::<usize>();
        if diary.broken == 0 {
            world.close_some(5);
            let gone = before - world.by_backend().values().sum::<usize>();
            world.open(gone)?;
            diary.opened += gone;
        }
        while round.elapsed() < PACE && start.elapsed() < time {
            world.exchange();
            std::thread::sleep(Duration::from_millis(250));
        }
    }
    diary.broken = diary.broken.max(world.exchange().broken());
    world.check_modes()?;
    Ok(diary)
}

fn change(world: &mut World, chance: &mut Chance, diary: &mut Diary) -> anyhow::Result<()> {
    let number = chance.below(BACKENDS);
    let before = world.service.clone();
    diary.changes += 1;
    match chance.below(10) {
        0..=2 => world.service.set(number, State::Draining),
        3 | 4 => world.service.set(number, State::Active),
        5 => world.service.fill(number, 25),
        6 => world.service.set_health(number, Health::Down),
        7 => (0..BACKENDS).for_each(|n| {
            if world.service.spec.backends.iter().any(|backend| backend.id == name(n)) {
                world.service.set_health(n, Health::Up);
            }
        }),
        8 => return lose_or_find_a_director(world, chance, diary),
        _ => return world.rehash(chance.below(255).into()),
    }
    // An operator keeps two that take new connections.
    let accepting = world.service.spec.backends.iter().filter(|backend| backend.accepts()).count();
    if accepting < 2 {
        world.service = before;
        return Ok(());
    }
    if !world.publish_if_safe(before)? {
        diary.refused += 1;
    }
    Ok(())
}

fn lose_or_find_a_director(world: &mut World, chance: &mut Chance, diary: &mut Diary) -> anyhow::Result<()> {
    let number = chance.below(DIRECTORS);
    let running = world.directors();
    if !running.contains(&number) {
        return world.revive_director(number);
    }
    if running.len() == 1 {
        return Ok(());
    }
    diary.directors_killed += 1;
    world.kill_director(number)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "takes a minute and more"]
fn soak_of_all_changes() {
    if !crate::privileged() {
        return;
    }
    let any = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = from_environment("SOAK_SEED").unwrap_or(any);
    let time = Duration::from_secs(from_environment("SOAK_SECONDS").unwrap_or(60));
    println!("seed {seed}, {} s", time.as_secs());
    let diary = soak(seed, time, true).unwrap();
    println!("{diary:?}");
    assert_eq!(diary.broken, 0, "seed {seed}");
    let control = soak(seed, time.min(Duration::from_secs(20)), false).unwrap();
    println!("second chance off: {control:?}");
    assert!(control.broken > 0, "nothing broke without, seed {seed}");
}
