//! A page in headless Chromium, driven through its DevTools pipe: scripts, keys, colour schemes, as a person meets them.
//!
//! Protocol: Chrome DevTools Protocol, JSON messages that end in a zero octet, on the browser's descriptors 3 and 4.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a page may do without a word of complaint on its console.
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    sent: u64,
    session: Option<String>,
    folder: tempfile::TempDir,
    complaints: Vec<String>,
}

impl Browser {
    /// Starts a browser; none where there is no Chromium.
    pub(crate) fn start() -> Option<Self> {
        let browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
        let Some(browser) = browsers.into_iter().find(|file| Path::new(file).exists()) else {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no chromium");
            println!("SKIPPED: no chromium");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", "exec timeout 90 \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1", browser])
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-quic", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self { process, to, from, sent: 0, session: None, folder, complaints: Vec::new() };
        let target = browser.send("Target.createTarget", &json!({"url": "about:blank"}));
        let attached =
            browser.send("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.send(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its answer; what the page complains of meanwhile is remembered.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut octets = Vec::new();
        self.from.read_until(0, &mut octets).unwrap();
        assert_eq!(octets.pop(), Some(0), "the browser went away");
        let message: Value = serde_json::from_slice(&octets).unwrap();
        let complains = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        if complains.iter().any(|event| message["method"] == *event) {
            self.complaints.push(message["params"].to_string());
        }
        message
    }

    /// Opens a page of that text and waits until it is loaded.
    pub(crate) fn open(&mut self, page: &str) {
        let file = self.folder.path().join("page.html");
        std::fs::write(&file, page).unwrap();
        self.send("Page.navigate", &json!({"url": format!("file://{}", file.display())}));
        while self.receive()["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.send("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses a key and lets it go, as a person would.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            " " => (32, " "),
            "ArrowUp" => (38, ""),
            "ArrowDown" => (40, ""),
            digit => (u32::from(digit.as_bytes()[0]), digit),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let params = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text});
            self.send("Input.dispatchKeyEvent", &params);
        }
    }

    /// Light or dark.
    pub(crate) fn scheme(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.send("Emulation.setEmulatedMedia", &json!({"features": [feature]}));
    }

    /// The width of the window, in pixels.
    pub(crate) fn width(&mut self, width: u32) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Fails on anything that the page wrote to the console so far.
    pub(crate) fn is_silent(&self) {
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `timeout` hands the signal on to the browser's main process.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").arg(id).status();
        let _ = self.process.wait();
    }
}

/// The document after loading `page` and running `script` in it; none where there is no browser.
///
/// Fails on anything that the page writes to the console.
pub(crate) fn document(page: &str, script: &str) -> Option<String> {
    let mut browser = Browser::start()?;
    browser.open(page);
    browser.value(&format!("{{ {script} }}; null"));
    let document = browser.value("document.documentElement.outerHTML");
    browser.is_silent();
    Some(document.as_str().unwrap().to_owned())
}
