//! The whole director: forwarding, tables swapped under load, routes followed, limits, offloads, privileges.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use dataplane::host::sys::interface::Offload;

use crate::host::{Host, Load, Running, Seen, by_backend, collect, expected, packet, syn, table};
use crate::namespace::{ip, isolated};

const FOUR: [&str; 4] = ["10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"];
const SIX: [&str; 4] = ["fd00::11", "fd00::12", "fd00::13", "fd00::14"];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn resolved(director: &Running) {
    director.until("all backends have a next hop", |status| {
        let backends = status["tables"][0]["backends"].as_array().unwrap();
        backends.iter().all(|backend| backend["unreachable"].is_null())
    });
}

/// Forwards 500 flows and compares each with the table, and the counters with the received packets.
fn forwards_by_the_table(settings: &str, backends: &[&str], source: &str) {
    let host = Host::new();
    let table = table(None, backends, 0);
    host.install(&table.encode());
    let mut ring = host.listen();
    let director = host.run(settings, &[]);
    resolved(&director);
    let frames: Vec<_> = (0..500).map(syn).collect();
    host.sender().send(&frames);
    let mut all = collect(&mut ring, frames.len());
    all.sort_by_key(|seen| seen.number);
    let wanted: Vec<_> = (0..500)
        .map(|number| Seen {
            number,
            hops: expected(&table, number),
            source: source.parse().unwrap(),
            to: FAR,
        })
        .collect();
    assert_eq!(all, wanted);
    let (report, said) = director.stop();
    assert_eq!(report["encapsulated"], 500, "{report:#}\n{said}");
    assert_eq!(report["driver"]["sent"], 500);
    assert_eq!(report["driver"]["lost"], 0);
    assert_eq!(by_backend(&report).values().sum::<u64>(), 500);
    for (at, backend) in backends.iter().enumerate() {
        let count = wanted.iter().filter(|seen| seen.hops[0].to_string() == *backend).count();
        assert_eq!(by_backend(&report)[&format!("web-{at}")], count as u64, "{backend}");
    }
}

#[test]
fn the_ring_forwards_by_the_table() {
    isolated(|| forwards_by_the_table("mode: af-packet\nworkers: 2", &FOUR, "10.0.0.1"));
}

#[test]
fn an_ipv6_underlay_is_used_where_backends_have_ipv6_addresses() {
    isolated(|| forwards_by_the_table("mode: af-packet\nworkers: 1", &SIX, "fd00::1"));
}

/// `pnet` sends through the interface that it receives on: client and backends share it here.
#[test]
fn the_plain_driver_forwards_by_the_table() {
    isolated(|| {
        let host = Host::new();
        ip("addr add 10.9.0.1/24 dev front");
        host.client.visit(|| {
            ip("link set client address 02:00:00:00:00:07");
            for last in [11, 12] {
                ip(&format!("addr add 10.9.0.{last}/24 dev client"));
            }
        });
        let table = table(None, &["10.9.0.11", "10.9.0.12"], 0);
        host.install(&table.encode());
        let mut ring = host.client.visit(|| {
            use dataplane::host::sys::{
                interface::Interface,
                ring::{Ring, Shape},
            };
            Ring::open(Interface::named("client").unwrap().index, Shape::default(), None).unwrap()
        });
        let director = host.run("mode: pnet\nworkers: 2", &[]);
        resolved(&director);
        let frames: Vec<_> = (0..300).map(syn).collect();
        host.sender().send(&frames);
        let mut all = collect(&mut ring, frames.len());
        all.sort_by_key(|seen| seen.number);
        let hops: Vec<_> = all.into_iter().map(|seen| seen.hops).collect();
        assert_eq!(hops, (0..300).map(|number| expected(&table, number)).collect::<Vec<_>>());
        let (report, said) = director.stop();
        assert_eq!(report["encapsulated"], 300, "{report:#}\n{said}");
    });
}

/// Packets are sent while the table is replaced a thousand times. Each arrives, forwarded by one of the two
/// tables; packets sent while only one table was in use were forwarded by that one.
#[test]
fn a_thousand_swaps_under_load_lose_nothing_and_tear_nothing() {
    isolated(|| {
        let host = Host::new();
        let tables = [table(None, &FOUR, 0), table(None, &FOUR, 1)];
        host.install(&tables[0].encode());
        let director = host.run("workers: 2", &[]);
        resolved(&director);
        let load = Load { swaps: SWAPS, pause: Duration::from_millis(2), limit: Duration::from_secs(120) };
        let flowed = host.swap_under_load(&director, &tables, &load, |_| {});
        let (report, said) = director.stop();
        flowed.judge(&tables, SWAPS, &report, &said);
    });
}

const SWAPS: u64 = 1000;

/// Stops threads also when a test fails under load; otherwise it would wait for them for ever.
#[test]
fn a_failure_under_load_ends_the_load() {
    isolated(|| {
        let host = Host::new();
        let tables = [table(None, &FOUR, 0), table(None, &FOUR, 1)];
        host.install(&tables[0].encode());
        let director = host.run("workers: 1", &[]);
        let load = Load { swaps: 1, pause: Duration::from_millis(2), limit: Duration::from_secs(120) };
        let fails = || host.swap_under_load(&director, &tables, &load, |swap| panic!("swap {swap}"));
        let failure = catch_unwind(AssertUnwindSafe(fails)).err().unwrap();
        assert_eq!(failure.downcast_ref::<String>().unwrap(), "swap 1");
    });
}

#[test]
fn a_bad_or_older_table_changes_nothing_and_is_told() {
    isolated(|| {
        let host = Host::new();
        let first = table(None, &FOUR, 0);
        let second = table(Some(&first), &FOUR, 1);
        host.install(&second.encode());
        let mut ring = host.listen();
        let director = host.run("workers: 1", &[]);
        resolved(&director);
        let digest = director.status().unwrap()["table"]["digest"].clone();
        let mut flipped = second.encode();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        for (refusals, bad) in [(1, b"nonsense".to_vec()), (2, flipped), (3, first.encode())] {
            host.install(&bad);
            let status = director.until("a refusal", |status| status["refused"] == refusals);
            assert_eq!(status["table"]["digest"], digest);
            assert!(status["last_refusal"].as_str().unwrap().contains("web.table"), "{status:#}");
        }
        let last = director.status().unwrap()["last_refusal"].as_str().unwrap().to_owned();
        assert!(last.contains("older") && last.contains("--allow-rollback"), "{last}");
        // Gone altogether, then SIGHUP.
        fs::remove_file(host.path("web.table")).unwrap();
        director.signal("HUP");
        director.until("a refusal", |status| status["refused"] == 4);
        host.sender().send(&[syn(7)]);
        assert_eq!(collect(&mut ring, 1)[0].hops, expected(&second, 7));
        // A valid one is still accepted.
        let third = table(Some(&second), &FOUR, 2);
        host.install(&third.encode());
        director.until("the swap", |status| status["swaps"] == 1);
        host.sender().send(&[syn(8)]);
        assert_eq!(collect(&mut ring, 1)[0].hops, expected(&third, 8));
        let (_, said) = director.stop();
        assert!(said.contains(" replaces ") && !said.contains("not its parent"), "{said}");
    });
}

#[test]
fn an_older_table_is_taken_if_the_operator_says_so() {
    isolated(|| {
        let host = Host::new();
        let first = table(None, &FOUR, 0);
        host.install(&table(Some(&first), &FOUR, 1).encode());
        let director = host.run("workers: 1", &["--allow-rollback"]);
        host.install(&first.encode());
        let status = director.until("the swap", |status| status["swaps"] == 1);
        assert_eq!(status["table"]["generation"], 1);
        let (_, said) = director.stop();
        assert!(said.contains("(generation 2), which is not its parent"), "{said}");
    });
}

#[test]
fn sighup_takes_over_the_configuration_but_not_what_needs_a_restart() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let director = host.run("workers: 1", &[]);
        resolved(&director);
        let mut ring = host.listen();
        let write = |settings: &str| {
            let base = "version: 1\ntable: web.table\ninterface: front\ncontrol: control\nworkers: 1\n";
            fs::write(host.path("dataplane.yaml"), format!("{base}{settings}\n")).unwrap();
            director.signal("HUP");
        };
        write("mtu: 1400\ngateway_mac: 02:00:00:00:00:77");
        director.until("the new MTU", |status| status["mtu"] == 1400);
        host.sender().send(&[syn(1)]);
        assert_eq!(collect(&mut ring, 1)[0].to, [2, 0, 0, 0, 0, 0x77]);
        write("mode: pnet");
        let status = director.until("a refusal", |status| status["refused"] == 1);
        assert!(status["last_refusal"].as_str().unwrap().contains("mode cannot change"), "{status:#}");
        write("mtu: 1");
        let status = director.until("a refusal", |status| status["refused"] == 2);
        assert!(status["last_refusal"].as_str().unwrap().contains("dataplane.yaml:6: mtu"), "{status:#}");
        assert_eq!(status["mtu"], 1400);
        director.stop();
    });
}

#[test]
fn a_new_route_and_a_new_gateway_card_are_followed_while_it_runs() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &["172.16.0.1", "172.16.0.2"], 0).encode());
        let mut ring = host.listen();
        let director = host.run("workers: 1", &[]);
        assert!(director.status().unwrap()["tables"][0]["backends"][0]["unreachable"].is_string());
        host.sender().send(&[syn(1)]);
        director.until("a drop", |status| status["dropped"]["no_route"] == 1);
        ip("route add 172.16.0.0/16 via 10.0.0.2");
        resolved(&director);
        host.sender().send(&[syn(2)]);
        assert_eq!(collect(&mut ring, 1)[0].to, FAR);
        // The gateway's card is replaced; its announcement reaches the director's neighbour table.
        host.backends.visit(|| ip("link set far address 02:00:00:00:00:22"));
        ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:22 dev back nud reachable");
        let mut last = None;
        for number in 3..500 {
            host.sender().send(&[syn(number)]);
            last = collect(&mut ring, 1).pop().map(|seen| seen.to);
            if last == Some([2, 0, 0, 0, 0, 0x22]) {
                break;
            }
        }
        assert_eq!(last, Some([2, 0, 0, 0, 0, 0x22]));
        ip("route del 172.16.0.0/16");
        director.until("no route", |status| status["tables"][0]["backends"][0]["unreachable"].is_string());
        director.stop();
    });
}

#[test]
fn answers_about_packets_that_are_too_big_are_limited() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let director = host.run("workers: 1\ntoo_big_per_second: 5", &[]);
        resolved(&director);
        let frames: Vec<_> = (0..100).map(|number| packet(number, &[0; 1460])).collect();
        host.sender().send(&frames);
        let status = director.until("all seen", |status| status["dropped"]["too_big"] == 100);
        let (sent, suppressed) = (&status["driver"]["sent"], &status["driver"]["suppressed"]);
        let sent = sent.as_u64().unwrap();
        assert!((5..100).contains(&sent), "five at once, then five a second: {sent}");
        assert_eq!(sent + suppressed.as_u64().unwrap(), 100);
        director.stop();
    });
}

/// The ring is full and the worker does not run: what the kernel drops is counted beside what the pipeline
/// drops, and the total has both.
#[test]
fn frames_that_the_ring_lost_are_in_the_total_of_drops() {
    const LOAD: u64 = 20_000;
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let director = host.run("workers: 1", &[]);
        resolved(&director);
        let too_big: Vec<_> = (0..3).map(|number| packet(number, &[0; 1_460])).collect();
        let mut sender = host.sender();
        sender.send(&too_big);
        director.until("three drops", |status| status["dropped"]["too_big"] == 3);
        director.signal("STOP");
        let load: Vec<_> = (0..64).map(|number| packet(number, &[0; 1_300])).collect();
        (0..LOAD.div_ceil(64)).for_each(|_| sender.send(&load));
        director.signal("CONT");
        let count = |status: &serde_json::Value, path: &str| status.pointer(path).unwrap().as_u64().unwrap();
        let sent = LOAD.div_ceil(64) * 64;
        let status = director.until("all are accounted for", |status| {
            count(status, "/encapsulated") + count(status, "/driver/lost") >= sent
        });
        let lost = count(&status, "/driver/lost");
        assert!(lost > 0, "{status:#}");
        assert_eq!(count(&status, "/encapsulated") + lost, sent, "{status:#}");
        assert_eq!(status["dropped"]["too_big"], 3, "counted separately");
        let others = count(&status, "/driver/congested") + count(&status, "/driver/refused");
        assert_eq!(count(&status, "/dropped_total"), 3 + lost + others, "{status:#}");
        let text = dataplane::control::socket::query(
            &host.path("control"),
            dataplane::control::socket::Format::Text,
        )
        .unwrap();
        let line = format!("  dropped too_big 3, by driver {}, total {}\n", lost + others, 3 + lost + others);
        assert!(text.contains(&line) && text.contains(&format!(" lost {lost},")), "{line}: {text}");
        director.stop();
    });
}

/// Two hops over IPv4 add 40 octets, and an IPv6 client may send 1,280.
#[test]
fn an_underlay_too_small_for_ipv6_clients_is_warned_about() {
    isolated(|| {
        let host = Host::new();
        let mut both = table(None, &FOUR, 0).tables()[0].clone();
        let mut bind = both.binds[0];
        bind.prefix = common::bind::Prefix::host("2001:db8::10".parse().unwrap());
        both.binds.push(bind);
        let both = common::table::ForwardingTable::new(None, vec![both]).unwrap();
        host.install(&both.encode());
        let check = |settings: &str| {
            let path = host.path("check.yaml");
            let text = format!("version: 1\ntable: web.table\ninterface: back\n{settings}\n");
            fs::write(&path, text).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_dataplane"));
            let output = command.args(["run", "--check", "--config"]).arg(path).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stderr).unwrap()
        };
        let warning =
            |mtu: u16| format!("the underlay's MTU is {mtu} octets, and IPv6 clients of table web need 1320");
        let cure = "Raise the MTU of the path to every backend to at least 1320";
        assert!(check("mtu: 1319").contains(&warning(1_319)) && check("mtu: 1319").contains(cure));
        assert_eq!(check("mtu: 1320"), "");
        ip("link set back mtu 1310");
        assert!(check("").contains(&warning(1_310)), "of the interface: {}", check(""));
        // By the routes, and not by the interface of the clients.
        let director = host.run("workers: 1", &[]);
        resolved(&director);
        assert!(director.said().contains(&warning(1_310)), "{}", director.said());
        // A change is logged; that everything is in order is not.
        ip("link set back mtu 1300");
        director.until("the new MTU", |status| status["mtu"] == 1_300);
        ip("link set back mtu 1400");
        director.until("the new MTU", |status| status["mtu"] == 1_400);
        let (_, said) = director.stop();
        assert_eq!(said.matches("IPv6 clients of table web need").count(), 2, "{said}");
        assert!(said.contains(&warning(1_300)), "{said}");
    });
}

#[test]
fn a_backend_on_the_directors_own_host_gets_its_packets() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &["10.0.0.1"], 0).encode());
        let socket = std::net::UdpSocket::bind("10.0.0.1:19523").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let director = host.run("workers: 1", &[]);
        host.sender().send(&[syn(3)]);
        let mut buffer = [0; 2048];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[8..len], syn(3)[14..], "GUE without hops, then the client's packet");
        assert_eq!(from.ip().to_string(), "10.0.0.1");
        let (report, _) = director.stop();
        assert_eq!((&report["local"], &report["driver"]["undelivered"]), (&1.into(), &0.into()));
    });
}

#[test]
fn offloads_are_off_while_it_runs_and_as_before_afterwards() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        for before in [true, false] {
            Offload::Gro.switch("front", before).unwrap();
            let director = host.run("workers: 1", &[]);
            assert!(!Offload::Gro.is_on("front").unwrap());
            director.stop();
            assert_eq!(Offload::Gro.is_on("front").unwrap(), before);
            Offload::Gro.switch("front", before).unwrap();
            let director = host.run("workers: 1\noffloads: keep", &[]);
            assert_eq!(Offload::Gro.is_on("front").unwrap(), before);
            let (_, said) = director.stop();
            assert_eq!(said.contains("gro is on"), before, "{said}");
        }
    });
}

/// A killed director leaves a note of the offloads that it switched off; the next one restores them at its
/// exit.
#[test]
fn offloads_that_a_killed_director_left_off_come_back_with_the_next_one() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let is_on = || Offload::Gro.is_on("front").unwrap();
        let kill = |settings: &str| {
            let director = host.run(settings, &[]);
            director.signal("KILL");
            director.ends();
            fs::remove_file(host.path("control")).unwrap();
        };
        Offload::Gro.switch("front", true).unwrap();
        // Killed twice in a row, and it is known still.
        kill("workers: 1");
        kill("workers: 1");
        assert!(!is_on(), "or nothing is shown here");
        host.run("workers: 1", &[]).stop();
        assert!(is_on());
        assert_eq!(notes(&host), [] as [String; 0]);
        // With `keep` it comes back at once.
        kill("workers: 1");
        assert!(!is_on());
        let director = host.run("workers: 1\noffloads: keep", &[]);
        assert!(is_on());
        director.stop();
        // A note of another boot is ignored, and offloads that were off before stay off.
        kill("workers: 1");
        let note = notes(&host).pop().unwrap();
        let text = fs::read_to_string(host.path(&note)).unwrap();
        fs::write(host.path(&note), text.replacen("boot ", "boot 0", 1)).unwrap();
        host.run("workers: 1", &[]).stop();
        assert!(!is_on());
        // Nor does one of an interface that is gone, where its number was given to another.
        let (namespace, _) = note.rsplit_once('-').unwrap();
        let back = dataplane::host::sys::interface::Interface::named("back").unwrap().index;
        fs::write(host.path(&format!("{namespace}-{back}")), text).unwrap();
        for command in
            ["link del front", "link set back down", "link set back name front", "link set front up"]
        {
            ip(command);
        }
        Offload::Gro.switch("front", false).unwrap();
        host.run("workers: 1", &[]).stop();
        assert!(!is_on());
    });
}

fn notes(host: &Host) -> Vec<String> {
    let names = fs::read_dir(host.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with("offloads-")).collect()
}

#[test]
fn what_is_missing_is_named() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let refused = |program: &str, arguments: &[&str], settings: &str| {
            let config = host.path("dataplane.yaml");
            fs::write(&config, format!("version: 1\ntable: web.table\n{settings}\n")).unwrap();
            let output = Command::new(program)
                .args(arguments)
                .args(["run", "--config"])
                .arg(&config)
                .env("RUNTIME_DIRECTORY", host.folder.path())
                .output()
                .unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let program = env!("CARGO_BIN_EXE_dataplane");
        let bare = ["--bounding-set", "-all", "--inh-caps", "-all", program];
        let (code, said) = refused("setpriv", &bare, "interface: front");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("lacks CAP_NET_RAW and CAP_NET_ADMIN") && said.contains("setcap"), "{said}");
        let (code, said) = refused(program, &[], "interface: none");
        assert!(code == Some(2) && said.contains("none: No such device"), "{said}");
        ip("link set front down");
        let (code, said) = refused(program, &[], "interface: front");
        assert!(code == Some(2) && said.contains("ip link set front up"), "{said}");
        let (code, said) = refused(program, &[], "interfaces: front");
        assert!(code == Some(1) && said.contains("dataplane.yaml:3:"), "{said}");
        fs::write(host.path("web.table"), b"nonsense").unwrap();
        let (code, said) = refused(program, &[], "interface: front");
        assert!(code == Some(1) && said.contains("web.table: "), "{said}");
    });
}

#[test]
fn a_host_that_would_answer_or_forward_itself_is_warned_about() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        ip("addr add 203.0.113.10/32 dev lo");
        let (_, said) = host.run("workers: 1", &[]).stop();
        assert!(said.contains("VIP 203.0.113.10 is an address of this host"), "{said}");
        // The operator runs the logged command, for a host that is a backend too; running it twice does no
        // harm.
        let command = said.lines().find_map(|line| line.split_once("redirector: ")).unwrap().1;
        for _ in 0..2 {
            drop(Command::new("sh").args(["-c", command]).output().unwrap());
        }
        let (_, said) = host.run("workers: 1", &[]).stop();
        assert!(!said.contains("address of this host"), "{said}");
        // The kernel still finds its own addresses.
        let route = Command::new("ip").args(["route", "get", "10.0.0.1"]).output().unwrap();
        assert!(route.stdout.starts_with(b"local "), "{route:?}");
    });
}

/// Two directors would each forward every packet. The first is killed as well as stopped: nothing that it
/// leaves may block the second.
#[test]
fn a_second_director_on_an_interface_is_refused() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let first = host.run("workers: 1", &[]);
        let second = || {
            fs::write(host.path("second.yaml"), "version: 1\ntable: web.table\ninterface: front\n").unwrap();
            // If it is not refused it runs.
            let mut command = Command::new("timeout");
            command
                .args(["10", env!("CARGO_BIN_EXE_dataplane"), "run", "--config"])
                .arg(host.path("second.yaml"))
                .env("RUNTIME_DIRECTORY", host.folder.path())
                .output()
                .unwrap()
        };
        let refused = second();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("front: another director"), "{said}");
        first.signal("KILL");
        first.ends();
        host.run("workers: 1", &[]).stop();
    });
}

/// Tests the readiness that `configs/director.service` waits for: routes are announced once the director
/// forwards, and not for a table that does not exist yet. The check before it works with a closed output.
#[test]
fn the_service_manager_is_notified_when_it_forwards() {
    isolated(|| {
        let host = Host::new();
        let manager = std::os::unix::net::UnixDatagram::bind(host.path("notify")).unwrap();
        fs::write(host.path("d.yaml"), "version: 1\ntable: web.table\ninterface: front\n").unwrap();
        let command = |arguments: &[&str]| {
            let mut command = Command::new("timeout");
            command.args(["10", env!("CARGO_BIN_EXE_dataplane"), "run", "--config"]).arg(host.path("d.yaml"));
            command.args(arguments).env("NOTIFY_SOCKET", host.path("notify"));
            command.env("RUNTIME_DIRECTORY", host.folder.path());
            command
        };
        let check = || {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command(&["--check"]).stdout(writer).output().unwrap()
        };
        assert_eq!(check().status.code(), Some(2), "no table yet");
        assert_eq!(command(&[]).output().unwrap().status.code(), Some(2));
        manager.set_nonblocking(true).unwrap();
        assert!(manager.recv(&mut [0; 16]).is_err());
        manager.set_nonblocking(false).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        host.install(&table(None, &FOUR, 0).encode());
        let checked = check();
        assert!(checked.status.success(), "{checked:?}");
        let mut director = command(&[]).spawn().unwrap();
        let notified = manager.recv(&mut [0; 16]);
        // `timeout` hands it on.
        drop(Command::new("kill").arg(director.id().to_string()).status());
        director.wait().unwrap();
        assert_eq!(notified.unwrap(), 8);
    });
}

#[test]
fn an_interface_that_goes_down_is_waited_for_without_spinning() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        for mode in ["af-packet", "pnet"] {
            let director = host.run(&format!("workers: 1\nmode: {mode}"), &[]);
            resolved(&director);
            ip("link set front down");
            let before = director.ticks();
            std::thread::sleep(Duration::from_millis(500));
            // 50 ticks if it did nothing else.
            assert!(director.ticks() - before < 20, "{mode} spins");
            ip("link set front up");
            // The far end notices the carrier with a delay, and drops frames that it sends before.
            director.until("it goes on", |status| {
                host.sender().send(&[syn(1)]);
                status["encapsulated"].as_u64() > Some(0)
            });
            director.stop();
        }
    });
}

#[test]
fn an_interface_that_is_gone_ends_the_director() {
    isolated(|| {
        for mode in ["af-packet", "pnet"] {
            let host = Host::new();
            host.install(&table(None, &FOUR, 0).encode());
            let director = host.run(&format!("workers: 2\nmode: {mode}"), &[]);
            ip("link del front");
            ip("link del back");
            let (code, said) = director.ends();
            assert!(code == Some(2) && said.contains("worker: No such device"), "{mode}, {code:?}: {said}");
        }
    });
}

#[test]
fn what_is_addressed_to_another_host_is_left_to_it() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        for mode in ["af-packet", "pnet"] {
            let director = host.run(&format!("workers: 1\nmode: {mode}"), &[]);
            let mut flooded = syn(1);
            flooded[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x55]);
            host.sender().send(&[flooded]);
            let status = director.until("it is seen", |status| status["driver"]["foreign"] == 1);
            assert_eq!(status["encapsulated"], 0, "{mode}");
            director.stop();
        }
    });
}

#[test]
fn the_host_itself_says_nothing_to_clients() {
    isolated(|| {
        let host = Host::new();
        host.install(&table(None, &FOUR, 0).encode());
        let director = host.run("workers: 1", &[]);
        resolved(&director);
        let mut answers = host.client.visit(|| {
            use dataplane::host::sys::{
                interface::Interface,
                ring::{Ring, Shape},
            };
            Ring::open(Interface::named("client").unwrap().index, Shape::default(), None).unwrap()
        });
        host.sender().send(&(0..50).map(syn).collect::<Vec<_>>());
        director.until("all forwarded", |status| status["encapsulated"] == 50);
        answers.wait(Duration::from_millis(200)).unwrap();
        let mut received = Vec::new();
        while let Some(mut block) = answers.block() {
            while let Some(frame) = block.frame() {
                if frame.bytes[12..14] == [8, 0] {
                    received.push(frame.bytes.to_vec());
                }
            }
        }
        assert!(received.is_empty(), "resets or ICMP: {received:x?}");
        director.stop();
    });
}
