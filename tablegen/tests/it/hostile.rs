//! Files and names that were made to harm: huge files, pipes, characters that command a terminal.

use crate::commands::{Folder, example, run, tablegen};
use crate::support::{backends, build, spec};
use std::fs::{self, File};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tablegen::generate::History;

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// No terminal may get these from a text for people.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)))
}

#[test]
fn names_of_files_and_excerpts_reach_no_terminal_as_commands() {
    let folder = Folder::new();
    let odd = folder.path("a\x1b[2Jb\nerror: c");
    let missing = run(&["check", &odd]);
    let expected = "a\\u{1b}[2Jb\\u{a}error: c: No such file or directory (os error 2)\n";
    assert!(said(&missing).ends_with(expected), "{:?}", said(&missing));
    fs::write(&odd, "version: 1\ntables: \x1b[31m\n").unwrap();
    for arguments in [["check", &odd], ["dump", &odd], ["check", &example("invalid/id-invisible")]] {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(if arguments[0] == "dump" { 2 } else { 1 }), "{arguments:?}");
        assert!(is_plain(&said(&refused)), "{:?}", said(&refused));
        assert_eq!(said(&refused).lines().count(), 1, "{:?}", said(&refused));
    }
    fs::copy(folder.table("minimal"), &odd).unwrap();
    let listed = tablegen(&["log", folder.0.path().to_str().unwrap()]);
    assert!(is_plain(&listed) && listed.contains("a\\u{1b}[2Jb\\u{a}error: c"), "{listed:?}");
}

/// An unknown argument is repeated in the error that it causes.
#[test]
fn arguments_reach_no_terminal_as_commands() {
    let odd = "x\x1b[2J\u{202e}y\u{9b}31m\rz";
    for arguments in [
        vec![odd],
        vec!["check", "a", odd],
        vec!["dump", "a", "--rows", odd],
        vec!["explain", "a", odd],
        vec!["help", odd],
    ] {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let said = said(&refused);
        assert!(is_plain(&said) && said.contains("\\u{202e}y\\u{9b}31m\\u{d}z"), "{said:?}");
    }
}

/// Tables that were built before such names were refused are read still, and shown as they are.
#[test]
fn names_in_old_tables_do_not_turn_the_lines_of_a_report() {
    let folder = Folder::new();
    let path = folder.path("old");
    let odd = "web\u{202e}1-bew";
    let named = tablegen::config::TableSpec { name: odd.into(), ..spec(backends(&["a\u{2028}b", "c"])) };
    let table = build(&named, History::None);
    fs::write(&path, table.encode()).unwrap();
    let flow = format!(
        "tcp 198.51.100.7:51234 > {}:{}",
        named.binds[0].prefix.address(),
        named.binds[0].ports.first()
    );
    for arguments in [vec!["dump", &path], vec!["diff", &path, &path], vec!["explain", &path, &flow]] {
        let report = tablegen(&arguments);
        assert!(is_plain(&report) && report.contains("web\\u{202e}1-bew"), "{arguments:?}: {report:?}");
    }
    let page = tablegen(&["diff", &path, &path, "--format", "html"]);
    assert!(is_plain(&page) && page.contains("web\\u{202e}1-bew"));
    // What scripts read is the name itself.
    let json: serde_json::Value =
        serde_json::from_str(&tablegen(&["dump", &path, "--rows", "1", "--json"])).unwrap();
    assert_eq!(json["tables"][0]["name"], odd);
}

#[test]
fn huge_files_are_refused_at_once() {
    let folder = Folder::new();
    let huge = folder.path("huge");
    File::create(&huge).unwrap().set_len(20 << 30).unwrap();
    let table = folder.table("minimal");
    let start = Instant::now();
    for arguments in [
        vec!["dump", &huge],
        vec!["simulate", &table, "--flows", &huge],
        vec!["diff", &table, &huge],
        vec!["check", &huge],
        vec!["import", &huge, "-o", "/dev/null"],
        vec!["drain", &huge, &table, "web-1"],
        vec!["check", "/dev/zero"],
        vec!["dump", "/dev/zero"],
    ] {
        let refused = run(&arguments);
        let reads_table = ["diff", "dump"].contains(&arguments[0]);
        let code = if reads_table { 2 } else { 1 };
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {}", said(&refused));
        let bounds = ["expected magic", "at most 67108864", "at most 1073741824"];
        assert!(bounds.iter().any(|bound| said(&refused).contains(bound)), "{}", said(&refused));
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Shells give such names: `<(git show HEAD:web.yaml)`.
#[test]
fn configurations_and_tables_may_come_from_a_pipe() {
    let folder = Folder::new();
    let piped = |file: &str, command: &str| {
        let program = env!("CARGO_BIN_EXE_tablegen");
        Command::new("sh")
            .args(["-c", &format!("cat '{file}' | '{program}' {command} /dev/stdin")])
            .output()
            .unwrap()
    };
    let (table, config) = (folder.table("minimal"), example("minimal"));
    assert_eq!(piped(&config, "check").stdout, tablegen(&["check", &config]).as_bytes());
    assert_eq!(piped(&table, "dump").stdout, tablegen(&["dump", &table]).as_bytes());
}

#[test]
fn a_secret_that_is_no_regular_file_is_refused_without_waiting() {
    let folder = Folder::new();
    let (pipe, config) = (folder.path("web.key"), folder.path("web.yaml"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text = fs::read_to_string(example("minimal")).unwrap();
    let key = text.lines().find(|line| line.contains("hash_key:")).unwrap();
    fs::write(&config, text.replace(key, "    hash_key: { file: web.key }")).unwrap();
    let refused = run(&["check", &config]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("web.key: a pipe, and no regular file"), "{}", said(&refused));
}

/// The key in it could be read by everybody before; the operator hears that.
#[test]
fn a_table_over_a_file_that_others_read_is_private_and_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    for command in ["build", "import"] {
        let file = folder.path(command);
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let glb = folder.path("glb.json");
        fs::write(&glb, GLB).unwrap();
        let source = if command == "build" { example("minimal") } else { glb };
        let output = run(&[command, &source, "-o", &file]);
        assert!(output.status.success(), "{}", said(&output));
        let warned = format!("warning: {file}: its mode was 0644 and is 0600 now");
        assert!(said(&output).contains(&warned), "{}", said(&output));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

const GLB: &str = r#"{"tables":[{"name":"web","hash_key":"f0e0d0c0b0a090807060504030201000",
    "seed":"000102030405060708090a0b0c0d0e0f","binds":[{"ip":"203.0.113.10","proto":"tcp","port":443}],
    "backends":[{"ip":"10.0.0.11","state":"active","healthy":true},{"ip":"10.0.0.12","state":"active","healthy":true}]}]}"#;
