//! A headless Chromium over its debugging pipe: one page at a time, recording everything it does.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser's name on PATH.
fn find() -> Option<&'static str> {
    let path = std::env::var_os("PATH")?;
    NAMES.into_iter().find(|name| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    next_id: u64,
    /// Addresses asked for other than the page itself and its own data.
    pub(crate) requests: Vec<String>,
    /// Console errors, exceptions, and violations of the page's policy.
    pub(crate) errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser that resolves no host name and opens an empty page.
    pub(crate) fn start(name: &str) -> Self {
        let profile = tempfile::tempdir().expect("profile");
        // The protocol's two descriptors are 3 and 4: our pipes, moved there by the shell.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"#, name])
            .args([
                "--remote-debugging-pipe",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take().expect("stdin");
        let messages = reader(child.stdout.take().expect("stdout"));
        let (session, requests, errors) = (String::new(), Vec::new(), Vec::new());
        let mut browser =
            Self { child, commands, messages, session, next_id: 0, requests, errors, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file and waits until its root element carries `data-page="ready"`.
    pub(crate) fn open(&mut self, path: &Path) {
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let ready =
            format!("location.href === {} && document.documentElement?.dataset.page === 'ready'", json!(url));
        let start = Instant::now();
        while self.eval(&ready) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "the page is not ready; errors: {:?}", self.errors);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Value of an expression in the page; a promise is waited for.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let arguments = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", arguments);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Shape and colour scheme of the screen.
    pub(crate) fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", screen);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", scheme);
        std::thread::sleep(Duration::from_millis(500));
    }

    /// The page, or its beginning, as a PNG file, for visual inspection.
    pub(crate) fn screenshot(&mut self, path: &Path) {
        let size = self.eval("[innerWidth, Math.min(document.scrollingElement.scrollHeight, 12000)]");
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let shot = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true, "clip": clip}));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(path, bytes).expect("screenshot");
    }

    /// Sends a command and returns its result; earlier events are recorded.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let mut command = json!({"id": self.next_id, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("the browser listens");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: the browser does not answer"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: the browser is gone"),
            };
            if message["id"] == json!(self.next_id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.record(&message);
        }
    }

    fn record(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let own = url.starts_with("file:") && params["type"] == json!("Document");
                if !own && !url.starts_with("data:") && !url.starts_with("blob:") {
                    self.requests.push(url.to_owned());
                }
            }
            "Runtime.exceptionThrown" => self.errors.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if ["error", "warning"].iter().any(|t| params["type"] == json!(t)) => {
                self.errors.push(params["args"].to_string());
            }
            "Log.entryAdded" if ["error", "warning"].iter().any(|l| params["entry"]["level"] == json!(l)) => {
                self.errors.push(params["entry"]["text"].to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Not `call`: it panics. The browser closes itself and its helpers; the kill is for a browser that hangs.
        let close = json!({"id": 0, "method": "Browser.close"});
        let _ = self.commands.write_all(format!("{close}\0").as_bytes());
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Messages end in a NUL.
fn reader(pipe: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while pipe.read_until(0, &mut bytes).is_ok_and(|n| n > 0) {
            let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
            let Ok(message) = serde_json::from_slice(text) else { return };
            if sender.send(message).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

/// A browser, or `None` where a missing one is allowed.
pub(crate) fn browser() -> Option<Browser> {
    let Some(name) = find() else {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "no Chromium on PATH: install it, this test must not be skipped in CI");
        eprintln!("\n*** SKIPPED: no chromium, chromium-browser or google-chrome on PATH ***\n");
        return None;
    };
    Some(Browser::start(name))
}

/// Writes a page to a file that the browser and people can open.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&dir).expect("directory");
    let path = dir.join(name);
    std::fs::write(&path, text).expect("page");
    path
}

pub(crate) fn quiet(browser: &Browser) {
    assert_eq!(browser.errors, Vec::<String>::new(), "the page complains");
    assert_eq!(browser.requests, Vec::<String>::new(), "the page asks for something");
}

/// Elements wider than the screen, except content that scrolls in its own box.
pub(crate) const WIDE: &str = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll table, svg') && \
    e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)";

/// Whatever is cut off, or in a box to scroll.
pub(crate) const CUT: &str = "[...document.querySelectorAll('td, .scroll')].filter(e => \
    e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).map(e => \
    e.className + e.textContent.slice(0, 40))";

/// The number of drawings and of visible traces of each plot.
pub(crate) const TRACES: &str = "[...document.querySelectorAll('.canvas')].map(c => \
    [c.querySelectorAll('svg').length, c.querySelectorAll('.trace').length])";
