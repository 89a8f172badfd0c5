//! Runs a frame through the pipeline, and through the program by `BPF_PROG_TEST_RUN`.

use aya::TestRun;
use aya::programs::TestRunOptions;
use dataplane::drivers::xdp::{Counts, Director, PuntReason, XdpError};
use dataplane::pipeline::{NextHop, Pipeline, Verdict};

pub(crate) const PASS: u32 = 2;
pub(crate) const TX: u32 = 3;
pub(crate) const REDIRECT: u32 = 4;
/// The interface on which a test run's frame arrives according to the kernel: `lo`.
pub(crate) const INGRESS: u32 = 1;
/// The kernel gives a test run's frame this much, less what it needs itself.
pub(crate) const LONGEST: usize = 3_400;
/// It refuses frames without a whole Ethernet header.
pub(crate) const SHORTEST: usize = 14;

/// What the program made of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) action: u32,
    pub(crate) frame: Vec<u8>,
}

/// The program for this pipeline; `None` (and SKIPPED) without the privilege. Fails there where `CI=true`.
/// All frames are sent through `ifindex`.
pub(crate) fn load(pipeline: &Pipeline, ifindex: u32) -> Option<Director> {
    let over = |next_hop| match next_hop {
        NextHop::Link { source, destination, .. } => NextHop::Link { ifindex, source, destination },
        NextHop::Local => NextHop::Local,
    };
    let pipeline = pipeline.with_next_hops(|backend, _| pipeline.next_hop(backend).map(over));
    match Director::load(&pipeline, |_| true) {
        Ok(director) => Some(director),
        Err(error) if is_forbidden(&error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "bpf(2): {error}");
            eprintln!("SKIPPED: bpf(2) is forbidden ({error}); run as root");
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn is_forbidden(error: &XdpError) -> bool {
    let text = format!("{error:?}");
    text.contains("PermissionDenied") || text.contains("code: 1,")
}

pub(crate) fn run(director: &Director, frame: &[u8]) -> Run {
    let mut out = vec![0xa5; 4_096];
    let options =
        TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), repeat: 1, ..Default::default() };
    let result = director.program().unwrap().test_run(options).unwrap();
    let len = usize::try_from(result.data_size_out).unwrap();
    out.truncate(len);
    Run { action: result.return_value, frame: out }
}

/// Runs a frame through both and checks that they agree: the program sent the pipeline's output, or punted
/// the frame. Returns the pipeline's verdict and the program's action.
pub(crate) fn compare(name: &str, pipeline: &Pipeline, director: &Director, frame: &[u8]) -> (Verdict, u32) {
    let mut out = vec![0xa5; pipeline.room(frame.len())];
    let verdict = pipeline.process(frame, &mut out);
    let run = run(director, frame);
    match run.action {
        PASS => assert_eq!(run.frame, frame, "{name}: left, but not as it came"),
        TX | REDIRECT => {
            let Verdict::Encapsulate(done) = verdict else {
                panic!("{name}: the program sent what the pipeline makes {verdict:?}\n{frame:02x?}")
            };
            let wanted = &out[..usize::try_from(done.len).unwrap()];
            assert_eq!(run.frame, wanted, "{name}: other octets\n{frame:02x?}");
        }
        other => panic!("{name}: action {other}\n{frame:02x?}"),
    }
    (verdict, run.action)
}

/// What `then` counts more than `now`.
pub(crate) fn less(now: &Counts, then: &Counts) -> Counts {
    let each = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a - b).collect();
    Counts { primaries: each(&now.primaries, &then.primaries), punted: each(&now.punted, &then.punted) }
}

/// The one reason counted, if no frame was sent.
pub(crate) fn only_reason(counts: &Counts) -> Option<PuntReason> {
    let reasons: Vec<_> = PuntReason::ALL.iter().filter(|reason| counts.punted(**reason) > 0).collect();
    match (counts.encapsulated(), &reasons[..]) {
        (0, [only]) if counts.punted(**only) == 1 => Some(**only),
        _ => None,
    }
}
