//! Files of a running director: table changes that inotify does not report, files that are not tables, a file
//! system that hangs, descriptors that run out, and other users who want its lock.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::table::ForwardingTable;
use dataplane::host::sys::interface::Interface;

use crate::host::{Host, Running, table};
use crate::namespace::{ip, isolated};

const TWO: [&str; 2] = ["10.0.0.11", "10.0.0.12"];

/// Tables, each the parent of the next.
fn tables(count: u32) -> Vec<ForwardingTable> {
    let mut all = Vec::new();
    for salt in 0..count {
        all.push(table(all.last(), &TWO, salt));
    }
    all
}

fn run(director: &str, arguments: &[&str]) {
    let status = Command::new(director).args(arguments).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{director} {arguments:?}");
}

/// Writes a temporary file and renames it.
fn install(folder: &Path, table: &ForwardingTable) {
    fs::write(folder.join("web.new"), table.encode()).unwrap();
    fs::rename(folder.join("web.new"), folder.join("web.table")).unwrap();
}

fn takes(director: &Running, what: &str, table: &ForwardingTable) {
    let digest = table.digest().to_string();
    director.until(what, |status| status["table"]["digest"] == *digest);
}

/// The configuration names `web.table`, a link to `current/web.table`; `current` is a link to a release.
#[test]
fn changes_behind_links_are_noticed() {
    isolated(|| {
        let (host, tables) = (Host::new(), tables(5));
        for (release, table) in tables[..2].iter().enumerate() {
            fs::create_dir_all(host.path(&format!("releases/{release}"))).unwrap();
            install(&host.path(&format!("releases/{release}")), table);
        }
        let switch = |to: &str, name: &str| {
            symlink(to, host.path("link.new")).unwrap();
            fs::rename(host.path("link.new"), host.path(name)).unwrap();
        };
        switch("releases/0", "current");
        switch("current/web.table", "web.table");
        let director = host.run("workers: 1", &[]);
        switch("releases/1", "current");
        takes(&director, "another release", &tables[1]);
        install(&host.path("releases/1"), &tables[2]);
        takes(&director, "a file renamed behind the link", &tables[2]);
        fs::write(host.path("releases/1/web.table"), tables[3].encode()).unwrap();
        takes(&director, "a file rewritten behind the link", &tables[3]);
        // The linked folder is moved away, and another folder takes its path.
        fs::rename(host.path("releases"), host.path("old")).unwrap();
        fs::create_dir_all(host.path("releases/1")).unwrap();
        install(&host.path("releases/1"), &tables[4]);
        takes(&director, "another parent folder", &tables[4]);
        let (report, said) = director.stop();
        assert_eq!((&report["swaps"], &report["refused"]), (&4.into(), &0.into()), "{said}");
    });
}

/// The watched folder is replaced; then the table changes in the new folder, with or without SIGHUP in
/// between.
#[test]
fn a_folder_that_replaces_the_watched_one_is_watched() {
    isolated(|| {
        let (host, tables) = (Host::new(), tables(6));
        let folder = host.path("tables");
        fs::create_dir(&folder).unwrap();
        install(&folder, &tables[0]);
        symlink("tables/web.table", host.path("web.table")).unwrap();
        let director = host.run("workers: 1", &[]);
        for (round, hangs_up) in [(0, true), (1, false)] {
            fs::rename(&folder, host.path(&format!("old-{round}"))).unwrap();
            fs::create_dir(&folder).unwrap();
            install(&folder, &tables[2 * round + 1]);
            if hangs_up {
                director.signal("HUP");
            }
            takes(&director, "the new folder's table", &tables[2 * round + 1]);
            install(&folder, &tables[2 * round + 2]);
            takes(&director, "a change in the new folder", &tables[2 * round + 2]);
        }
        // Changes in the old folder have no effect any more.
        install(&host.path("old-1"), &tables[5]);
        std::thread::sleep(Duration::from_millis(1_500));
        takes(&director, "it stays", &tables[4]);
        director.stop();
    });
}

/// The kernel queues 16,384 events (fs.inotify.max_queued_events) and drops later ones.
#[test]
fn a_change_among_events_that_were_lost_is_noticed() {
    isolated(|| {
        let (host, tables) = (Host::new(), tables(2));
        host.install(&tables[0].encode());
        let director = host.run("workers: 1", &[]);
        director.signal("STOP");
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let most: u32 = most.trim().parse().unwrap();
        assert!(most < 100_000, "too many to be lost: {most}");
        // Two names in turn: the kernel merges equal events that follow each other.
        for number in 0..most + 500 {
            File::create(host.path(["a", "b"][number as usize % 2])).unwrap();
        }
        host.install(&tables[1].encode());
        director.signal("CONT");
        takes(&director, "the change", &tables[1]);
        director.stop();
    });
}

/// Refused once, and read again once there are descriptors. Backends keep their next hops meanwhile, although
/// the network changes and the interfaces cannot be looked at.
#[test]
fn a_table_that_came_while_descriptors_were_exhausted_is_read_later() {
    isolated(|| {
        let (host, tables) = (Host::new(), tables(2));
        host.install(&tables[0].encode());
        for backend in TWO {
            ip(&format!("neigh add {backend} lladdr 02:00:00:00:00:02 dev back nud permanent"));
        }
        let director = host.run("workers: 1", &[]);
        let mut control = UnixStream::connect(host.path("control")).unwrap();
        run("prlimit", &["--pid", &director.pid(), "--nofile=3:1024"]);
        ip("addr add 10.0.0.77/24 dev back");
        until(|| director.said().contains("the previous ones stay in use"));
        host.install(&tables[1].encode());
        // The socket's next clients wait for descriptors too.
        until(|| director.said().contains("Too many open files"));
        std::thread::sleep(Duration::from_millis(2_500));
        run("prlimit", &["--pid", &director.pid(), "--nofile=1024:1024"]);
        takes(&director, "the change", &tables[1]);
        drop(control.read(&mut [0; 1]));
        let (report, said) = director.stop();
        assert_eq!(report["refused"], 1, "once, and not once a second: {said}");
        assert!(!said.contains("gets no packets"), "{said}");
    });
}

fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come about");
}

/// Each file is refused once, because it does not change; meanwhile counters and signals are served.
#[test]
fn what_is_no_table_is_refused_once_and_keeps_nobody_waiting() {
    isolated(|| {
        let (host, tables) = (Host::new(), tables(2));
        host.install(&tables[0].encode());
        let director = host.run("workers: 1", &[]);
        let start = Instant::now();
        for (number, kind) in (1..).zip(["pipe", "folder", "device", "huge", "right start"]) {
            let new = host.path("new");
            match kind {
                "pipe" => run("mkfifo", &[new.to_str().unwrap()]),
                "folder" => fs::create_dir(&new).unwrap(),
                "device" => symlink("/dev/zero", &new).unwrap(),
                "huge" => File::create(&new).unwrap().set_len(20 << 30).unwrap(),
                _ => {
                    fs::write(&new, &tables[1].encode()[..96]).unwrap();
                    File::options().write(true).open(&new).unwrap().set_len(1 << 30).unwrap();
                }
            }
            // A folder can be put in the place of no file.
            if host.path("web.table").is_dir() {
                fs::remove_dir(host.path("web.table")).unwrap();
            } else if kind == "folder" {
                fs::remove_file(host.path("web.table")).unwrap();
            }
            fs::rename(&new, host.path("web.table")).unwrap();
            let status = director.until(kind, |status| status["refused"] == number);
            let why = status["last_refusal"].as_str().unwrap();
            let expected = if number <= 3 { "not a regular file" } else { "web.table: " };
            assert!(why.contains(expected), "{kind}: {why}");
        }
        assert!(start.elapsed() < Duration::from_secs(15), "nothing was read whole: {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(director.status().unwrap()["refused"], 5, "{}", director.said());
        director.signal("HUP");
        director.until("it is reported again", |status| status["refused"] == 6);
        host.install(&tables[1].encode());
        takes(&director, "a right one", &tables[1]);
        director.stop();
    });
}

/// fanotify(7) blocks every open of the file until the test answers, which it never does.
#[test]
fn a_file_system_that_hangs_hangs_neither_counters_nor_signals() {
    const HOLD: &str = "$| = 1; my $fd = syscall(300, 4, 0); die if $fd < 0; \
        syscall(301, $fd, 1, 0x10000, -100, $ARGV[0]) == 0 or die; print 'held'; sleep 60";
    isolated(|| {
        let (host, tables) = (Host::new(), tables(3));
        host.install(&tables[0].encode());
        let director = host.run("workers: 1", &[]);
        let new = host.path("held");
        fs::write(&new, tables[1].encode()).unwrap();
        let mut perl = Command::new("perl");
        perl.args(["-e", HOLD]).arg(&new);
        let Some(mut holder) = holds(&mut perl) else { return };
        fs::rename(&new, host.path("web.table")).unwrap();
        director.signal("HUP");
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(director.status().unwrap()["swaps"], 0, "it was held, or nothing is shown here");
        // What came meanwhile is read once the file system goes on; of two the newer.
        host.install(&tables[2].encode());
        drop(holder.kill());
        drop(holder.wait());
        takes(&director, "the newest", &tables[2]);
        fs::write(&new, tables[1].encode()).unwrap();
        let Some(mut holder) = holds(&mut perl) else { return };
        fs::rename(&new, host.path("web.table")).unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        let start = Instant::now();
        director.stop();
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        drop(holder.kill());
        drop(holder.wait());
    });
}

/// A process that says `held`, or nothing (and SKIPPED) where it may not. Fails there where `CI=true`.
fn holds(command: &mut Command) -> Option<Child> {
    let started = command.stdout(Stdio::piped()).spawn();
    let held = started.and_then(|mut child| {
        let said = child.stdout.as_mut().map(|out| out.read_exact(&mut [0; 4]));
        said.unwrap_or(Ok(())).inspect_err(|_| drop(child.wait())).map(|()| child)
    });
    held.inspect_err(|error| {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must run this: {error}");
        eprintln!("SKIPPED: {command:?}: {error}");
    })
    .ok()
}

/// Another user takes every name that a director could use and that is not protected: the abstract socket
/// that directors of former versions held, with a full queue, and the lock that a killed director left.
#[test]
fn another_user_cannot_keep_a_director_from_starting() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &TWO, 0).encode());
        fs::set_permissions(host.folder.path(), Permissions::from_mode(0o755)).unwrap();
        let first = host.run("workers: 1", &[]);
        first.signal("KILL");
        first.ends();
        let names = fs::read_dir(host.folder.path())
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let lock = names.filter(|name| name.ends_with(".lock")).collect::<Vec<_>>();
        assert_eq!(lock.len(), 1, "left by the killed one");
        let front = Interface::named("front").unwrap().index;
        let attack = format!(
            "use Socket; use Fcntl ':flock'; $| = 1; my $name = pack('Sxa*', AF_UNIX, 'tryst/frames/{front}'); \
             socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, $name) or die; listen($s, 0) or die; my @full; \
             for (1..2) {{ socket(my $c, AF_UNIX, SOCK_STREAM | 2048, 0); connect($c, $name); push @full, $c; }} \
             socket(my $c, AF_UNIX, SOCK_STREAM | 2048, 0); die 'room' if connect($c, $name); \
             for my $way ('<', '+<', '>') {{ die 'open' if open(my $f, $way, $ARGV[0]); }} print 'held'; sleep 60"
        );
        let mut attacker = Command::new("setpriv");
        attacker.args(["--reuid=65534", "--regid=65534", "--clear-groups", "perl", "-e", &attack]);
        attacker.arg(host.path(&lock[0]));
        let Some(mut attacker) = holds(&mut attacker) else { return };
        let director = host.run("workers: 1", &[]);
        assert!(director.status().is_some());
        let (_, said) = director.stop();
        assert!(!said.contains("holds"), "{said}");
        drop(attacker.kill());
        drop(attacker.wait());
    });
}

/// Sixty clients send nothing, and there are descriptors for only a few: the director does not spin, and
/// other clients are
/// answered.
#[test]
fn clients_without_descriptors_cost_no_processor_time() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &TWO, 0).encode());
        let director = host.run("workers: 1", &[]);
        let limit = director.descriptors() + 10;
        run("prlimit", &["--pid", &director.pid(), &format!("--nofile={limit}:{limit}")]);
        let idle: Vec<_> = (0..60).map(|_| UnixStream::connect(host.path("control")).unwrap()).collect();
        let (before, start) = (director.ticks(), Instant::now());
        while start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let used = director.ticks() - before;
        // 200 if it did nothing else.
        assert!(used < 40, "{used} ticks in {:?}", start.elapsed());
        director.until("others are answered", |_| true);
        drop(idle);
        director.stop();
    });
}
