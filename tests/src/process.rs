//! Child processes that never outlive the test.
//!
//! P1 A dropped [`Process`] is dead and reaped: after return, error or panic.
//! P2 When the test process dies, even by SIGKILL, the kernel kills its children: each is started through a small
//!    wrapper that sets the parent-death signal and then execs the server. That signal is tied to the forking thread,
//!    so a single long-lived thread does all the forking.
//! P3 Each child has its own process group: Ctrl-C at the terminal reaches us, not the servers, and processes that a
//!    child starts end with it.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::wait_until;

/// A running child whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; stdout and stderr are appended to `log`.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let mut wrapped = with_death_signal(command);
        wrapped.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = spawn_from_long_lived_thread(wrapped)
            .with_context(|| format!("start {name}: run {program}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Path of its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status, if it has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("ask how {} does", self.name))
    }

    /// Sends a signal: TERM to end it, STOP and CONT to suspend and resume it.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Waits until it ends by itself.
    pub fn await_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} (process {}) ends", self.name, self.id());
        wait_until(&what, limit, || self.exit_status())
    }

    /// Kills its process group with SIGKILL and reaps it.
    pub fn kill(&mut self) -> Result<()> {
        if self.exit_status()?.is_none() {
            // The process may end before the signal arrives; the wait below detects real errors.
            let _ = kill_process_group(self.pid()?, Signal::KILL);
        }
        self.child.wait().with_context(|| format!("reap {}", self.name))?;
        Ok(())
    }

    /// Bytes of resident memory now.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let kib: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .ok_or_else(|| anyhow!("no VmRSS in {path}"))?;
        Ok(kib * 1024)
    }

    fn pid(&self) -> Result<Pid> {
        i32::try_from(self.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| anyhow!("{} has no process id", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(e) = self.kill() {
            eprintln!("could not end {}: {e:#}", self.name);
        }
    }
}

/// Wraps a command so that the kernel kills it when this process dies.
fn with_death_signal(command: &Command) -> Command {
    let mut wrapped = match death_wrapper() {
        [] => Command::new(command.get_program()),
        [first, rest @ ..] => {
            let mut wrapped = Command::new(first);
            wrapped.args(rest).arg(command.get_program());
            wrapped
        }
    };
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// `setpriv` of util-linux if available, else a Python one-liner; nothing on other systems than Linux.
fn death_wrapper() -> &'static [&'static str] {
    static WRAPPER: OnceLock<&[&str]> = OnceLock::new();
    WRAPPER.get_or_init(|| {
        let works = |wrapper: &[&str]| match wrapper {
            [first, rest @ ..] => Command::new(first)
                .args(rest)
                .arg("true")
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
            [] => true,
        };
        [SETPRIV, PYTHON].into_iter().find(|wrapper| works(wrapper)).unwrap_or(&[])
    })
}

const SETPRIV: &[&str] = &["setpriv", "--pdeathsig", "KILL", "--"];
const PYTHON: &[&str] = &[
    "python3",
    "-c",
    "import ctypes,os,sys; ctypes.CDLL(None).prctl(1,9) and sys.exit(1); os.execvp(sys.argv[1],sys.argv[1:])",
];

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

fn spawn_from_long_lived_thread(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<SpawnRequest>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                // If the requesting thread is gone, nobody owns the child, so it must be killed.
                if let Err(mpsc::SendError(Ok(mut child))) = reply.send(command.spawn()) {
                    let _ = child.kill();
                }
            }
        });
        Mutex::new(sender)
    });
    let (reply, answer) = mpsc::channel();
    spawner
        .lock()
        .map_err(|_| anyhow!("the spawning thread is gone"))?
        .send((command, reply))
        .map_err(|_| anyhow!("the spawning thread is gone"))?;
    Ok(answer.recv()??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{PATIENCE, wait_for};

    fn alive(pid: &str) -> bool {
        // A zombie that was not reaped yet counts as dead.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_dropped_process_takes_its_children_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]);
        let process = Process::spawn("shell", &command, &log).unwrap();
        let grandchild = wait_until("the child says its pid", PATIENCE, || {
            let text = std::fs::read_to_string(&log)?;
            Ok(text.strip_suffix('\n').map(str::to_owned))
        })
        .unwrap();
        assert!(alive(&grandchild));
        drop(process);
        wait_for("the grandchild ends", PATIENCE, || Ok(!alive(&grandchild))).unwrap();
    }

    #[test]
    fn a_panic_ends_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::spawn("sleeper", &command, &log).unwrap();
        let pid = process.id().to_string();
        let panicked = std::thread::spawn(move || {
            let _held = process;
            panic!("on purpose");
        })
        .join();
        assert!(panicked.is_err());
        assert!(!alive(&pid));
    }

    /// Tests P2 for real: this test's own binary starts a child and is killed with SIGKILL.
    #[test]
    fn children_die_when_the_test_process_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "process::tests::starts_a_child_and_waits", "--ignored"])
            .arg("--nocapture")
            .env("UNDERSTUDY_PID_FILE", dir.path().join("pid"));
        let mut parent = Process::spawn("parent", &command, &log).unwrap();
        let child = wait_until("the child runs", PATIENCE, || {
            let text = std::fs::read_to_string(dir.path().join("pid"))?;
            Ok(text.strip_suffix('\n').map(str::to_owned))
        })
        .unwrap();
        assert!(alive(&child));
        // Only this process is killed, not its group, so only the kernel can end the child.
        parent.signal(Signal::KILL).unwrap();
        parent.await_exit(PATIENCE).unwrap();
        wait_for("the child of the killed process ends", PATIENCE, || Ok(!alive(&child))).unwrap();
    }

    #[test]
    #[ignore = "the other half of children_die_when_the_test_process_is_killed"]
    fn starts_a_child_and_waits() {
        let Ok(path) = std::env::var("UNDERSTUDY_PID_FILE") else { return };
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let mut child = Process::spawn("child", &command, &dir.path().join("log")).unwrap();
        std::fs::write(&path, format!("{}\n", child.id())).unwrap();
        child.await_exit(Duration::from_secs(600)).unwrap();
    }
}
