//! Starting the fixture program and reading what it says.

use std::process::{Command, Stdio};

use serde_json::Value;

/// The variable that makes this program the fixture program; its value chooses among the sets.
pub(crate) const FIXTURES: &str = "SCENETEST_FIXTURES";

/// A fixture program that has ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The command of the fixture program, with the usual set.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command
        .env(FIXTURES, "usual")
        .env_remove("GITHUB_ACTIONS")
        .args(args)
        .stdin(Stdio::null());
    command
}

/// Runs it as it is.
pub(crate) fn run(args: &[&str]) -> Ran {
    ran(&mut program(args))
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("it starts");
    Ran {
        code: output.status.code().expect("it exits"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A session's report.
pub(crate) struct Report {
    pub(crate) code: i32,
    pub(crate) json: Value,
    /// What it displayed for people.
    pub(crate) display: String,
}

/// Runs the cases and reads the report.
#[track_caller]
pub(crate) fn report(args: &[&str]) -> Report {
    Report::of(run(&[args, &["--json"]].concat()))
}

impl Report {
    /// Of a program that was given `--json`.
    #[track_caller]
    pub(crate) fn of(ran: Ran) -> Self {
        let json = serde_json::from_str(&ran.stdout);
        let json = json.unwrap_or_else(|error| panic!("{error} in {}\n{}", ran.stdout, ran.stderr));
        Self {
            code: ran.code,
            json,
            display: ran.stderr,
        }
    }

    pub(crate) fn cases(&self) -> &[Value] {
        self.json["cases"].as_array().expect("a list")
    }

    #[track_caller]
    pub(crate) fn case(&self, name: &str) -> Case<'_> {
        let found: Vec<&Value> = self
            .cases()
            .iter()
            .filter(|case| case["name"] == name)
            .collect();
        assert_eq!(found.len(), 1, "{name} in {:#}", self.json);
        Case(found[0])
    }
}

/// One case of a report.
pub(crate) struct Case<'r>(pub(crate) &'r Value);

impl Case<'_> {
    pub(crate) fn kind(&self) -> &str {
        self.0["outcome"]["kind"].as_str().expect("text")
    }

    /// The reason, cause or limit; whichever the outcome has.
    pub(crate) fn why(&self) -> &str {
        let fields = ["reason", "cause", "limit", "changes"];
        fields
            .iter()
            .find_map(|field| self.0["outcome"][field].as_str())
            .unwrap_or("")
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or("")
    }

    pub(crate) fn leaked(&self) -> Vec<&str> {
        self.0["leaked"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    #[track_caller]
    pub(crate) fn is(&self, kind: &str, why: &str) {
        assert_eq!(self.kind(), kind, "{:#}", self.0);
        assert!(self.why().contains(why), "`{}` has no `{why}`", self.why());
    }
}

/// How often to repeat what is tried under load: once, or as often as `SCENETEST_REPEATS` says; then the
/// test needs a longer deadline too, `PROCFORK_TEST_SECONDS`.
pub(crate) fn repeats() -> usize {
    let wanted = std::env::var("SCENETEST_REPEATS").ok();
    wanted.and_then(|wanted| wanted.parse().ok()).unwrap_or(1)
}

/// A named pipe: opened by one side, it waits for the other.
pub(crate) fn make_gate(path: &std::path::Path) -> std::io::Result<()> {
    Ok(nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU)?)
}

/// The descendants of this test that still run.
pub(crate) fn still_running() -> Vec<String> {
    let all = procfork::descendants(procfork::Pid::this()).expect("/proc is there");
    let running = all
        .iter()
        .filter(|process| process.state != procfork::ProcessState::Zombie);
    running
        .map(|process| format!("{} ({})", process.name, process.pid))
        .collect()
}

/// Processes that only use the processors.
pub(crate) struct Load(Vec<procfork::Child>);

impl Load {
    pub(crate) fn start(n_processes: usize) -> Self {
        let busy = |_| {
            let options = procfork::ForkOptions::new("busy");
            procfork::fork(options, |_| {
                loop {
                    std::hint::spin_loop();
                }
                #[expect(unreachable_code, reason = "says what the closure would return")]
                ()
            })
        };
        let children = (0..n_processes).map(busy).collect::<Result<_, _>>();
        Self(children.expect("they start"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        for child in &self.0 {
            let _ = child.signal(procfork::Signal::KILL);
        }
        for child in &self.0 {
            let _ = child.wait(deadline);
        }
    }
}
