//! What a process may use is what was asked for, in both modes, and a start can be watched.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use facade::{
    AddressReuse, ConfigError, Error, Resource, Settings, SimFault, StartCause, StartMode,
    StartPhase, StartProgress, TreeNode, Worker, WorkerBuilder,
};

use crate::support::{COMPILED, builder, directory, pids, wait_gone};

fn configured() -> WorkerBuilder {
    let below = builder(1, 1)
        .name("below")
        .settings(Settings::new().nice(4).env("LEVEL", "below"))
        .each_sub_worker(Settings::new().nice(9));
    builder(2, 2)
        .name("root")
        .each_chip(Settings::new().env("THREADS", "1").limit(Resource::Core, 0))
        .chip(1, Settings::new().env("THREADS", "2"))
        .each_sub_worker(Settings::new().nice(5))
        .sub_worker(0, Settings::new().cpus([a_cpu()]))
        .worker(below)
}

/// A CPU that this process may use.
fn a_cpu() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.unwrap().trim().split(['-', ',']).next().unwrap();
    first.parse().unwrap()
}

fn shown(tree: &TreeNode) -> Vec<String> {
    let one = |node: &&TreeNode| format!("{} [{}]", node.path, node.settings);
    tree.flatten().iter().map(one).collect()
}

/// The nice value that the kernel has for a process.
fn nice_of(pid: u32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    rest.split(' ').nth(17).unwrap().parse().unwrap()
}

pub(crate) fn every_process_has_the_settings_that_it_was_given_and_the_tree_says_so() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let node = configured().start_mode(mode).build().unwrap();
        node.init().unwrap();
        let tree = node.tree().unwrap();
        let sub0 = format!("root/sub0 [cpus {}, nice 5]", a_cpu());
        assert_eq!(
            shown(&tree),
            [
                "root []",
                "root/chip0 [THREADS=1, core 0]",
                "root/chip1 [THREADS=2, core 0]",
                "root/below [nice 4, LEVEL=below]",
                "root/below/chip0 []",
                "root/below/sub0 [nice 9]",
                &sub0,
                "root/sub1 [nice 5]",
            ]
        );
        let all = tree.flatten();
        assert!(all[0].made.is_none());
        assert_eq!(all[1].made, Some(mode));
        // Inherited where nothing else was asked for.
        let nices: Vec<i32> = all[3..].iter().map(|node| nice_of(node.pid)).collect();
        assert_eq!(nices, [4, 4, 9, 5, 5]);
        let environ = fs::read_to_string(format!("/proc/{}/status", all[6].pid)).unwrap();
        let allowed = format!("Cpus_allowed_list:\t{}\n", a_cpu());
        assert!(environ.contains(&allowed), "{environ}");
        node.close().unwrap();
    }
}

pub(crate) fn the_configuration_is_printed_whole() {
    let below = builder(0, 1)
        .name("below")
        .settings(Settings::new().nice(4))
        .grace(Duration::from_millis(20));
    let node = builder(2, 2)
        .device_memory(1 << 20)
        .address_reuse(AddressReuse::AtOnce)
        .device_timeout(Duration::from_secs(2))
        .sim_fault(1, SimFault::Probe { times: 1 })
        .chip(1, Settings::new().cpus([0, 1, 2]).env("THREADS", "2"))
        .each_sub_worker(Settings::new().limit(Resource::OpenFiles, 64))
        .start_mode(StartMode::Spawn)
        .worker(below)
        .build()
        .unwrap();
    insta::assert_snapshot!(node.config());
    let json = serde_json::to_value(node.config()).unwrap();
    assert_eq!(json["workers"][0]["settings"]["nice"], 4);
}

pub(crate) fn settings_that_cannot_hold_are_refused_before_any_process_is_made() {
    let refused = |builder: WorkerBuilder| match builder.build() {
        Err(Error::Config(error)) => error,
        other => panic!("{other:?}"),
    };
    let error = refused(builder(1, 0).settings(Settings::new().nice(1)));
    assert!(matches!(error, ConfigError::RootSettings { .. }), "{error}");
    let error = refused(builder(1, 0).chip(1, Settings::new().nice(1)));
    let ConfigError::NoSuchChild {
        index: 1,
        n_children: 1,
        ..
    } = error
    else {
        panic!("{error}")
    };
    let below = builder(0, 2).each_sub_worker(Settings::new().nice(30));
    let error = refused(builder(1, 0).worker(below.name("below")));
    let ConfigError::BadSetting { name, of, reason } = &error else {
        panic!("{error}")
    };
    assert_eq!((&**name, &**of), ("below", "sub worker"));
    assert!(reason.contains("nice 30"), "{error}");
}

pub(crate) fn a_setting_that_the_kernel_refuses_fails_the_start_with_its_place() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let below = builder(0, 2).sub_worker(1, Settings::new().cpus([1023]));
        let node = builder(1, 0)
            .name("root")
            .worker(below.name("below").start_mode(mode))
            .start_mode(mode)
            .build()
            .unwrap();
        let mut failed = Vec::new();
        let error = node
            .init_with(|progress| {
                if progress.phase == StartPhase::Failed {
                    failed.push(progress.path.clone());
                }
            })
            .unwrap_err();
        let Error::Start(start) = &error else {
            panic!("{error}")
        };
        assert_eq!(start.worker, "root/below/sub1", "{error}");
        assert!(error.to_string().contains("cpus 1023"), "{error}");
        assert!(failed.contains(&"root/below/sub1".to_owned()), "{failed:?}");
    }
}

/// What the start of a tree of two levels tells.
fn watched(mode: StartMode) -> Vec<StartProgress> {
    let node = builder(1, 1)
        .name("root")
        .worker(builder(1, 1).name("below").start_mode(mode))
        .start_mode(mode)
        .build()
        .unwrap();
    let mut told = Vec::new();
    node.init_with(|progress| told.push(progress.clone()))
        .unwrap();
    let pids = pids(&node.tree().unwrap());
    node.close().unwrap();
    wait_gone(&pids);
    told
}

pub(crate) fn the_start_tells_every_phase_of_every_worker_in_order() {
    for mode in [StartMode::Fork, StartMode::Spawn] {
        let told = watched(mode);
        let of = |path: &str| -> Vec<StartPhase> {
            let own = told.iter().filter(|progress| progress.path == path);
            own.map(|progress| progress.phase).collect()
        };
        use StartPhase::{Began, ChildrenMade, Configured, DeviceOpen, Made, Ready};
        let chip = [Made, Began, Configured, DeviceOpen, Ready];
        let sub = [Made, Began, Configured, Ready];
        assert_eq!(of("root"), [ChildrenMade, Ready]);
        assert_eq!(of("root/chip0"), chip);
        assert_eq!(of("root/sub0"), sub);
        assert_eq!(
            of("root/below"),
            [Made, Began, Configured, ChildrenMade, Ready]
        );
        assert_eq!(of("root/below/chip0"), chip);
        assert_eq!(of("root/below/sub0"), sub);
        let last = |path: &str| told.iter().rfind(|progress| progress.path == path).unwrap();
        // Ready means the whole subtree.
        assert!(last("root/below").elapsed >= last("root/below/chip0").elapsed);
        assert_eq!(told.last().map(|progress| &*progress.path), Some("root"));
    }
}

/// A compiler that never ends: what a chip worker hangs on while it brings up its callables.
fn stuck_compiler(dir: &std::path::Path) -> String {
    let gate = dir.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(dir.join("kernel.c"), "int nothing;\n").unwrap();
    let compiler = dir.join("cc");
    fs::write(
        &compiler,
        format!("#!/bin/sh\nread line < {}\n", gate.display()),
    )
    .unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    compiler.to_str().unwrap().to_owned()
}

pub(crate) fn a_start_that_hangs_says_for_whom_and_ends_in_its_limit() {
    let dir = directory();
    let settings = Settings::new()
        .env("CC", stuck_compiler(dir.path()))
        .env("FACADE_TEST_SOURCE", dir.path().to_str().unwrap());
    let below = Worker::node().chips(2).chip(1, settings).sub_workers(1);
    let node = builder(0, 1)
        .name("root")
        .worker(below.name("below"))
        .start_timeout(Duration::from_millis(700))
        .build()
        .unwrap();
    // Only chip 1 has the variable and hangs on its compiler; chip 0 fails at once where nobody gives it.
    node.register_chip(&COMPILED).unwrap();
    let error = node.init().unwrap_err();
    drop(node);
    let Error::Start(start) = &error else {
        panic!("{error}")
    };
    // Chip 0 has no source: its failure is the first cause, and the hanging sibling is ended.
    assert_eq!(start.worker, "root/below/chip0", "{error}");

    let settings = Settings::new()
        .env("CC", dir.path().join("cc").to_str().unwrap())
        .env("FACADE_TEST_SOURCE", dir.path().to_str().unwrap());
    let below = Worker::node().chips(1).each_chip(settings).sub_workers(1);
    let node = builder(0, 1)
        .name("root")
        .worker(below.name("below"))
        .start_timeout(Duration::from_millis(700))
        .build()
        .unwrap();
    node.register_chip(&COMPILED).unwrap();
    let error = node.init().unwrap_err();
    let Error::Start(start) = &error else {
        panic!("{error}")
    };
    let StartCause::Deadline { waiting, .. } = &start.cause else {
        panic!("{error}")
    };
    let stood: Vec<(&str, StartPhase)> =
        waiting.iter().map(|who| (&*who.path, who.phase)).collect();
    assert_eq!(stood, [("root/below/chip0", StartPhase::DeviceOpen)]);
    assert!(
        error.to_string().contains("`root/below/chip0` device open"),
        "{error}"
    );
}
