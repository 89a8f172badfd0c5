//! Whole tables: time of the ranking, of the build around it, and of one change, and peak memory.
//!
//! `cargo run --release -p benches --bin tables`. Times are the best of several runs that took turns.

use benches::table::https;
use benches::usage::hidden_arguments;
use common::backend::{Backend, Health, State};
use common::flow::HashFields;
use common::hash::SipKey;
use common::table::{Ranking, Seed, Table};
use std::hint::black_box;
use std::time::Instant;
use tablegen::config::TableSpec;
use tablegen::generate::{self, History, Incremental};

const TURNS: usize = 15;

fn main() -> anyhow::Result<()> {
    let words =
        hidden_arguments("tables", "Time whole tables, builds and single changes, and print peak memory");
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        ["memory", count] => return memory(count.parse()?),
        _ => anyhow::bail!("unknown arguments: {}", words.join(" ")),
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    pool.install(|| {
        println!(
            "instructions: {}, threads: {}",
            tryst_hrw::Isa::detect().name(),
            rayon::current_num_threads()
        );
        full();
        bounded()?;
        incremental()
    })?;
    for count in [10, 1_000, 10_000] {
        let program = std::env::current_exe()?;
        let status = std::process::Command::new(program).args(["memory", &count.to_string()]).status()?;
        anyhow::ensure!(status.success(), "memory {count}: {status}");
    }
    Ok(())
}

fn spec(ranking: Ranking, weights: impl Iterator<Item = f64>) -> TableSpec {
    let backend = |(i, weight): (u32, f64)| Backend {
        weight,
        ..Backend::new(format!("backend-{i:05}"), (0x0a00_0001 + i).to_be_bytes().into())
    };
    TableSpec {
        name: "web".to_owned(),
        rows: 1 << 16,
        max_hops: 4,
        ranking,
        seed: Seed(*b"a seed of a test"),
        hash_key: SipKey::new(*b"and another key."),
        hash_fields: HashFields::DEFAULT,
        alt_hash_fields: HashFields::NONE,
        spread_zones: false,
        max_share: None,
        binds: vec![https([203, 0, 113, 10].into())],
        backends: (0..).zip(weights).map(backend).collect(),
    }
}

/// Best milliseconds of each, taking turns.
fn best(mut runs: Vec<Box<dyn FnMut() + '_>>, turns: usize) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; runs.len()];
    for _ in 0..turns {
        for (run, best) in runs.iter_mut().zip(&mut best) {
            let start = Instant::now();
            run();
            *best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    best
}

fn full() {
    println!(
        "\n65,536 rows, ms (best of {TURNS}); rows: hop lists of all rows; build: with checks and digest"
    );
    println!("backends      rows     build | few weights  distinct  ratios | glb rows");
    for count in [10, 100, 256, 1_000, 10_000] {
        let plain = spec(Ranking::Hrw, std::iter::repeat_n(1.0, count));
        let few = spec(Ranking::Hrw, [1.0, 2.0, 5.0].into_iter().cycle().take(count));
        let distinct =
            spec(Ranking::Hrw, (0u32..).map(|i| 1.0 + f64::from(i * 7919 % 1009) / 331.0).take(count));
        let glb = spec(Ranking::Glb, std::iter::repeat_n(1.0, count));
        let rows = |spec: &TableSpec| drop(black_box(generate::table(spec, History::None, &mut Vec::new())));
        let whole = || drop(black_box(generate::generate(std::slice::from_ref(&plain), History::None)));
        let runs: Vec<Box<dyn FnMut() + '_>> = vec![
            Box::new(|| rows(&plain)),
            Box::new(whole),
            Box::new(|| rows(&few)),
            Box::new(|| rows(&distinct)),
            Box::new(|| rows(&glb)),
        ];
        let [plain, whole, few, distinct, digest] = best(runs, if count > 1_000 { 3 } else { TURNS })[..]
        else {
            return;
        };
        println!(
            "{count:8} {plain:9.2} {whole:9.2} | {few:11.2} {distinct:9.2} {:.2} {:.2} | {digest:8.2}",
            few / plain,
            distinct / plain
        );
    }
}

/// What a bound of shares gives, and what it costs: time, and rows that move between backends which both stay.
fn bounded() -> anyhow::Result<()> {
    println!("\nmax_share 1.05: the fullest backend over its share, rows by another choice than the first,");
    println!("rows that one more backend moves between the others, and ms for all rows (best of {TURNS})");
    println!("backends      free     bound   turned away   moved extra   free ms   bound ms");
    for count in [10, 100, 256, 1_000] {
        let free = spec(Ranking::Hrw, std::iter::repeat_n(1.0, count));
        let held = TableSpec { max_share: Some(1.05), ..free.clone() };
        let more =
            TableSpec { max_share: Some(1.05), ..spec(Ranking::Hrw, std::iter::repeat_n(1.0, count + 1)) };
        let build = |spec: &TableSpec| generate::table(spec, History::None, &mut Vec::new());
        let [plain, bound, grown] = [&free, &held, &more].map(build);
        let fullest = |table: &Table| {
            let most = table.rows_owned().into_iter().max().unwrap_or(0);
            f64::from(most) * table.backends.len() as f64 / f64::from(table.rows())
        };
        let differ = |a: &Table, b: &Table| {
            let moved = |row: &u32| {
                let (from, to) = (a.primary(*row), b.primary(*row));
                from != to && to.is_none_or(|to| usize::from(to) < a.backends.len())
            };
            (0..a.rows()).filter(moved).count()
        };
        let times = best(
            vec![Box::new(|| drop(black_box(build(&free)))), Box::new(|| drop(black_box(build(&held))))],
            TURNS,
        );
        let [free_ms, bound_ms] = times[..] else { anyhow::bail!("two times") };
        println!(
            "{count:8} {:9.3} {:9.3} {:13} {:13} {free_ms:9.2} {bound_ms:10.2}",
            fullest(&plain),
            fullest(&bound),
            differ(&plain, &bound),
            differ(&bound, &grown),
        );
    }
    Ok(())
}

/// A change of one backend, made and unmade, against a build.
fn incremental() -> anyhow::Result<()> {
    let count = 1_000;
    let start = spec(Ranking::Hrw, std::iter::repeat_n(1.0, count));
    let full = || drop(black_box(generate::table(&start, History::None, &mut Vec::new())));
    let Some(&full) = best(vec![Box::new(full)], TURNS).first() else { return Ok(()) };
    println!("\none change of one backend among {count}, ms (best of {TURNS}); all rows: {full:.2}");
    println!("change            update   faster   rows done   seal");
    let mut live = Incremental::new(std::slice::from_ref(&start), History::None);
    type Change = (&'static str, fn(&mut Vec<Backend>));
    let changes: [Change; 6] = [
        ("health down", |all| all[500].health = Health::Down),
        ("draining", |all| all[500].state = State::Draining),
        ("inactive", |all| all[500].state = State::Inactive),
        ("weight 2", |all| all[500].weight = 2.0),
        ("removed", |all| drop(all.remove(500))),
        ("added", |all| all.push(Backend::new("backend-00500a", [10, 9, 0, 1].into()))),
    ];
    for (name, change) in changes {
        let mut changed = start.clone();
        change(&mut changed.backends);
        let (mut update, mut seal, mut rows) = (f64::INFINITY, f64::INFINITY, 0);
        for _ in 0..TURNS {
            let before = Instant::now();
            rows = live.update(std::slice::from_ref(&changed));
            update = update.min(before.elapsed().as_secs_f64() * 1e3);
            let before = Instant::now();
            let sealed = live.seal()?;
            seal = seal.min(before.elapsed().as_secs_f64() * 1e3);
            let anew = generate::generate(std::slice::from_ref(&changed), History::None)?;
            anyhow::ensure!(sealed == anew.table, "{name}: not the table of a full build");
            live.update(std::slice::from_ref(&start));
        }
        println!("{name:15} {update:8.3} {:7.0}x {rows:11} {seal:6.2}", full / update);
    }
    Ok(())
}

fn memory(count: usize) -> anyhow::Result<()> {
    let spec = spec(Ranking::Hrw, std::iter::repeat_n(1.0, count));
    let octets = generate::generate(&[spec], History::None)?.table.encode().len();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    println!("memory: {count} backends, table file {} KiB, peak {peak}", octets >> 10);
    Ok(())
}
