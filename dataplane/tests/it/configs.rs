//! `dataplane.yaml` and the table that it names: refusals with their exact messages, and the hash fields of a
//! table file that does not contain them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{flow::HashFields, table::ForwardingTable};

use crate::support::tables::{glb_file, glb_specs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn check(config: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_dataplane");
    Command::new(program)
        .args(["run", "--check", "--config"])
        .arg(config)
        .current_dir(root())
        .output()
        .unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// `configs/invalid/dataplane` has one file for each refusal, with its message.
#[test]
fn every_refusal_has_exactly_the_words_beside_it() {
    let folder = "configs/invalid/dataplane";
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let files = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
    let files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|found| found == "yaml")).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let expected = std::fs::read_to_string(root().join(&file).with_extension("txt")).unwrap();
        let output = check(&file);
        assert_eq!(text(&output.stderr), format!("dataplane: {expected}"), "{}", file.display());
        assert_eq!(output.status.code(), Some(1), "{}", file.display());
    }
}

/// An unknown argument is repeated in the error that it causes, and may hold commands to a terminal.
#[test]
fn arguments_reach_no_terminal_as_commands() {
    let odd = "x\x1b[2J\u{202e}y\u{9b}31m\rz";
    for arguments in
        [vec![odd], vec!["run", "--config", "a", odd], vec!["run", "--config", "a", "--mode", odd]]
    {
        let refused = Command::new(env!("CARGO_BIN_EXE_dataplane")).args(&arguments).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("\\u{202e}y\\u{9b}31m\\u{d}z"), "{said:?}");
        assert!(!said.contains(['\x1b', '\u{202e}', '\u{9b}', '\r']), "{said:?}");
    }
}

#[test]
fn what_glbs_file_does_not_say_is_assumed_with_a_warning_or_configured() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("glb.bin"), glb_file()).unwrap();
    let config = |glb: &str, table: &str| {
        std::fs::write(path("c.yaml"), format!("version: 1\ntable: {table}\ninterface: eth0\n{glb}"))
            .unwrap();
        let output = check(&path("c.yaml"));
        (output.status.code(), text(&output.stderr))
    };
    let warning = format!(
        "director: {}: a GLB Director table file does not say which fields it hashes: [src_addr] is taken, GLB's \
         default. If director.conf sets hash_fields or alt_hash_fields, set the same under `glb` in the configuration; \
         `glb: {{}}` confirms the default\n",
        path("glb.bin").display()
    );
    assert_eq!(config("", "glb.bin"), (Some(0), warning));
    assert_eq!(config("glb: {}\n", "glb.bin"), (Some(0), String::new()));
    let fields = "glb: { hash_fields: [src_addr, src_port], alt_hash_fields: [src_addr] }\n";
    assert_eq!(config(fields, "glb.bin"), (Some(0), String::new()));

    let specs = glb_specs(HashFields::SRC_ADDR, HashFields::NONE);
    let native = ForwardingTable::new(None, specs.into_iter().map(|spec| spec.build()).collect()).unwrap();
    std::fs::write(path("native.bin"), native.encode()).unwrap();
    assert_eq!(config("", "native.bin"), (Some(0), String::new()));
    let refused = format!(
        "dataplane: {}: not a GLB Director table file, so it holds its hash fields: remove `glb` from the configuration\n",
        path("native.bin").display()
    );
    assert_eq!(config("glb: {}\n", "native.bin"), (Some(1), refused));
}
