//! The process of a case: runs the body and tells the runner how it went.

use std::backtrace::Backtrace;
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

use crate::compile;
use crate::context::{SceneContext, Setup};
use crate::failure::{Failure, FailureKind};
use crate::record::{Event, Reporter, Verdict};
use crate::scene::{Case, Scene};

/// Exit codes of the process. They only confirm the verdict; see [`crate::record`].
pub(crate) mod code {
    pub(crate) const PASSED: u8 = 0;
    pub(crate) const NOT_PASSED: u8 = 1;
}

/// What the last panic said, and where.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Runs one case; returns the exit code of the process.
pub(crate) fn run(scene: &Scene, case: &Case, setup: Setup, reporter: &Reporter) -> u8 {
    panic::set_hook(Box::new(report_panic));
    let process = std::process::id();
    let verdict =
        match panic::catch_unwind(AssertUnwindSafe(|| judge(scene, case, setup, reporter))) {
            Ok(verdict) => verdict,
            Err(_) => Verdict::Panicked {
                message: last_panic(),
            },
        };
    let code = verdict.exit_code();
    if std::process::id() != process {
        // A copy that the body has forked, and that came back here: the verdict is not its to give.
        return code::NOT_PASSED;
    }
    reporter.send(&Event::Verdict { verdict });
    code
}

fn judge(scene: &Scene, case: &Case, setup: Setup, reporter: &Reporter) -> Verdict {
    if let Err(error) = compile::for_run(scene, setup.platform) {
        return verdict_of(error.into(), &[], 0);
    }
    let devices = setup.devices.clone();
    let mut cx = match SceneContext::new(scene, case, setup, reporter) {
        Ok(cx) => cx,
        Err(failure) => return verdict_of(failure, &devices, 0),
    };
    match (scene.body)(&mut cx) {
        Ok(()) => passed_unless(&cx).unwrap_or(Verdict::Passed),
        Err(failure) => verdict_of(failure, &devices, cx.rounds_begun()),
    }
}

/// Why a case does not pass although its body returned without an error.
fn passed_unless(cx: &SceneContext<'_>) -> Option<Verdict> {
    let failed = |reason| Some(Verdict::Failed { reason });
    if let Some(reason) = cx.refuted() {
        return failed(reason.to_owned());
    }
    if cx.compared_nothing() {
        return Some(Verdict::ComparedNothing);
    }
    // The last thing of all: what does not pass leaves golden files alone.
    cx.stage_golden()
        .map_or_else(|failure| failed(failure.message), |()| None)
}

/// `devices` are those of the case, `rounds_begun` how far it came.
fn verdict_of(failure: Failure, devices: &[u32], rounds_begun: u32) -> Verdict {
    let reason = failure.message;
    let unusable = |devices: Vec<u32>, reason| Verdict::DeviceUnusable {
        devices,
        reason,
        before_first_round: rounds_begun == 0,
    };
    match failure.kind {
        FailureKind::Failed => Verdict::Failed { reason },
        FailureKind::Skipped => Verdict::Skipped { reason },
        FailureKind::DeviceUnusable(named) => {
            let (own, others): (Vec<u32>, Vec<u32>) =
                named.iter().partition(|device| devices.contains(device));
            let reason = match others.is_empty() {
                true => reason,
                false => format!(
                    "{reason} (it says that {others:?} cannot be used any more, and its devices are {devices:?}; name them as `SceneContext::devices` does)"
                ),
            };
            match own.is_empty() {
                true => Verdict::Failed { reason },
                false => unusable(own, reason),
            }
        }
        FailureKind::ChipUnusable(chip) => {
            let one = chip.and_then(|chip| devices.get(chip));
            unusable(one.map_or(devices.to_vec(), |device| vec![*device]), reason)
        }
    }
}

/// Prints the panic with its stack, for the output that the runner shows, and keeps its message.
fn report_panic(info: &panic::PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is no text".to_owned());
    let place = info
        .location()
        .map_or_else(|| "somewhere".to_owned(), ToString::to_string);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let stack = Backtrace::force_capture();
    let _ = writeln!(
        io::stderr(),
        "thread `{name}` panicked at {place}: {text}\n{stack}"
    );
    *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("at {place}: {text}"));
}

fn last_panic() -> String {
    let kept = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    kept.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests;
