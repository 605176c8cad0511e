//! Settings hold in the process that applies them and in its children, and what the kernel refuses is named.

use std::error::Error as _;
use std::fs;

use procfork::{ExitCause, ForkOptions, Resource, Settings, SettingsError, fork};

use crate::support::soon;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs `body` in a child, whose failure is this test's.
fn in_child(body: impl FnOnce() -> Outcome) {
    let child = fork(ForkOptions::new("settings"), |_| {
        body().map_err(|error| error.to_string())
    })
    .unwrap();
    let cause = child.wait(soon()).unwrap();
    assert_eq!(cause, ExitCause::Exited(0), "{:?}", child.last_words());
}

fn first_cpu() -> u32 {
    let all = Settings::new().cpus([0]).effective().unwrap().to_string();
    let digits = all.trim_start_matches("cpus ");
    digits.split(['-', ',']).next().unwrap().parse().unwrap()
}

pub(crate) fn what_was_set_holds_and_is_read_back_as_the_kernel_has_it() {
    let cpu = first_cpu();
    let settings = Settings::new()
        .cpus([cpu])
        .nice(7)
        .env("PROCFORK_TEST", "a value")
        .limit(Resource::OpenFiles, 100);
    in_child(move || {
        settings.apply()?;
        assert_eq!(settings.effective()?, settings);
        // Seen from outside of the crate, too.
        let status = fs::read_to_string("/proc/self/status")?;
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert_eq!(allowed.map(str::trim), Some(&*cpu.to_string()));
        let stat = fs::read_to_string("/proc/self/stat")?;
        let nice = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split(' ').nth(17));
        assert_eq!(nice, Some("7"));
        assert_eq!(std::env::var("PROCFORK_TEST")?, "a value");
        let limits = fs::read_to_string("/proc/self/limits")?;
        let open = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let numbers: Vec<&str> = open.unwrap_or("").split_whitespace().collect();
        assert_eq!(numbers[3..5], ["100", "100"]);
        Ok(())
    });
}

pub(crate) fn children_inherit_settings() {
    let settings = Settings::new().nice(3).env("PROCFORK_TEST", "inherited");
    in_child(move || {
        settings.apply()?;
        let below = settings.clone();
        let child = fork(ForkOptions::new("below"), move |_| {
            let found = below.effective().map_err(|error| error.to_string())?;
            if found == below {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })?;
        assert_eq!(
            child.wait(soon())?,
            ExitCause::Exited(0),
            "{:?}",
            child.last_words()
        );
        Ok(())
    });
}

pub(crate) fn a_setting_that_the_kernel_refuses_is_named() {
    in_child(|| {
        let Err(refused) = Settings::new().cpus([1023]).apply() else {
            return Err("a CPU that no machine here has was accepted".into());
        };
        assert!(
            matches!(&refused, SettingsError::Refused { setting, .. } if setting == "cpus 1023")
        );
        let text = refused.to_string();
        assert!(text.contains("Invalid argument") && text.contains("this process may use it"));
        assert!(
            refused.source().is_none(),
            "the cause would be printed twice"
        );
        Ok(())
    });
}

pub(crate) fn the_environment_is_not_changed_beside_other_threads() {
    in_child(|| {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let other = std::thread::Builder::new().name("reader".to_owned());
        let other = other.spawn(move || gate.recv())?;
        let refused = Settings::new()
            .env("PROCFORK_TEST", "x")
            .apply()
            .unwrap_err();
        assert!(refused.to_string().contains("reader"), "{refused}");
        assert!(std::env::var_os("PROCFORK_TEST").is_none());
        drop(open);
        let _ = other.join();
        Ok(())
    });
}
