//! A page in headless Chromium: what it looks like after its scripts, and after a script of the test.

use std::path::Path;
use std::process::Command;

/// The document after loading `page` and running `script` in it; none where there is no browser.
///
/// Fails on anything that the page writes to the console.
pub(crate) fn document(page: &str, script: &str) -> Option<String> {
    let browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let browser = browsers.into_iter().find(|file| Path::new(file).exists());
    let Some(browser) = browser else {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no chromium");
        println!("SKIPPED: no chromium");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, page.replace("</body>", &format!("<script>{script}</script></body>"))).unwrap();
    let output = Command::new("timeout")
        .args([
            "60",
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:#?}");
    assert!(output.status.success(), "{}: {log}", output.status);
    Some(String::from_utf8(output.stdout).unwrap())
}
