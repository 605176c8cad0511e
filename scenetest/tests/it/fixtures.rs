//! Scenes that end in every way in which a scene can end.

#![expect(
    clippy::print_stdout,
    reason = "what scenes print is part of what is tested"
)]

use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use facade::{Platform, StartMode};
use nix::sys::signal::{SigSet, Signal, raise};
use procfork::ForkOptions;
use scenetest::{Case, Failure, HostTensor, Limits, Scene, SceneContext, Tensors, Tolerance};

pub(crate) type Done = Result<(), Failure>;

mod more;

/// The set that the variable names.
pub(crate) fn all() -> Vec<Scene> {
    let mut scenes = usual();
    match std::env::var(crate::support::FIXTURES).as_deref() {
        Ok("twice") => scenes.push(Scene::new("passes", |_| Ok(()))),
        Ok("device-over-case") => {
            scenes.push(limited(Duration::from_secs(9), Duration::from_secs(8)))
        }
        Ok("hanging") => scenes.push(hanging()),
        Ok("six") => return six(),
        Ok("more") => return more::all(),
        Ok("long-step") => {
            let limits = Limits {
                device: Duration::from_secs(60),
                case: Duration::from_secs(7_200),
            };
            let case = Case::new("case").devices(0).step("nightly").limits(limits);
            scenes.push(Scene::new("long_step", |_| Ok(())).case(case));
        }
        Ok("case-over-session") => {
            scenes.push(limited(Duration::from_secs(9), Duration::from_secs(7_200)));
        }
        _ => {}
    }
    scenes
}

fn limited(device: Duration, case: Duration) -> Scene {
    let limits = Limits { device, case };
    Scene::new("limited", |_| Ok(())).case(Case::new("wrong").limits(limits))
}

/// ST-4: the second crashes after it said that it passes, the third breaks its device, the sixth
/// says nothing; the others wait behind them.
fn six() -> Vec<Scene> {
    let scene = |name, body| Scene::new(name, body).case(Case::new("case"));
    vec![
        scene("one", |_| Ok(())),
        scene("two", |_| {
            println!("PASS two::case");
            crash_in_this_function();
            Ok(())
        }),
        scene("three", |cx| {
            let broken = cx.devices().to_vec();
            cx.rounds(|_| Err::<(), _>(Failure::device_unusable(broken.clone(), "it is gone")))
        }),
        scene("four", |cx| match cx.devices() {
            // What breaks on the broken device alone, before its first round.
            [device] if Some(device.to_string()) == std::env::var("BROKEN").ok() => {
                Err(Failure::device_unusable([*device], "it was broken before"))
            }
            _ => Ok(()),
        }),
        scene("five", |_| Err(Failure::skip("there is no such thing"))),
        scene("six", |_| std::process::exit(0)),
    ]
}

/// A scene on the host alone, with its one case.
pub(crate) fn host(name: &'static str, body: fn(&mut SceneContext<'_>) -> Done) -> Scene {
    Scene::new(name, body).case(Case::new("case").devices(0))
}

/// Cases that are over their time, one after the other.
fn hanging() -> Scene {
    let limits = Limits {
        device: Duration::from_millis(500),
        case: Duration::from_secs(1),
    };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let cases = names.map(|name| Case::new(name).devices(0).limits(limits));
    cases.into_iter().fold(
        Scene::new("hangs", |_| stuck_in_this_function()),
        Scene::case,
    )
}

fn usual() -> Vec<Scene> {
    let plain = [
        host("passes", |_| Ok(())),
        host("fails", |_| {
            println!("before the failure");
            Err(Failure::new("seven is not eight"))
        }),
        host("fails_with_causes", |_| {
            let number: i32 = "seven".parse()?;
            Err(Failure::new(format!("{number}")))
        }),
        host("panics", |_| panic!("the panic's message")),
        host("aborts", |_| abort_in_this_function()),
        host("crashes_in_grandchild", |_| {
            let child = procfork::fork(ForkOptions::new("crasher"), |_| crash_in_this_function())?;
            let cause = child.wait(Instant::now() + Duration::from_secs(60))?;
            Err(Failure::new(format!("the grandchild {cause}")))
        }),
        host("panics_in_worker", |cx| {
            let node = cx.node().sub_workers(1).build()?;
            let panics = node.register_fn("panics", |_: &facade::Args| panic_in_this_function())?;
            node.init()?;
            node.run(|orch| orch.submit_sub(&panics, facade::args().scalar(1_u32)))?;
            Ok(())
        }),
        host("crashes_in_spawned_worker", |cx| {
            let spawned = cx.node().sub_workers(1).start_mode(StartMode::Spawn);
            let node = spawned.build()?;
            let crashes = node.register_fn("crashes", |_: &facade::Args| {
                crash_in_this_function();
                Ok(())
            })?;
            node.init()?;
            node.run(|orch| orch.submit_sub(&crashes, facade::args().scalar(1_u32)))?;
            Ok(())
        }),
        host("panics_in_spawned_worker", |cx| {
            let spawned = cx.node().sub_workers(1).start_mode(StartMode::Spawn);
            let node = spawned.build()?;
            let panics = node.register_fn("panics", |_: &facade::Args| panic_in_this_function())?;
            node.init()?;
            node.run(|orch| orch.submit_sub(&panics, facade::args().scalar(1_u32)))?;
            Ok(())
        }),
        host("skips", |_| {
            Err(Failure::skip("there is no such thing here"))
        }),
        host("exits_silently", |_| std::process::exit(0)),
        host("crashes_after_pass", |_| {
            println!("PASS crashes_after_pass::case");
            println!("test result: ok. 1 passed");
            let _ = raise(Signal::SIGSEGV);
            Ok(())
        }),
        host("killed", |_| {
            let _ = raise(Signal::SIGKILL);
            Ok(())
        }),
        host("prints_much", |_| {
            print_a_megabyte();
            Ok(())
        }),
        host("closes_its_streams", |_| {
            let _ = nix::unistd::close(1);
            let _ = nix::unistd::close(2);
            Ok(())
        }),
        host("manual_only", |_| Ok(())).case(Case::new("manual").devices(0).manual()),
        host("real_chip_only", |_| Ok(())).platforms([Platform::A5]),
        host("many_writers", many_writers),
    ];
    let stuck = [
        host("hangs_in_grandchild", |cx| {
            let child = stuck_child(|| ())?;
            println!("the child is there");
            cx.time_is_over();
            child.wait(Instant::now() + Duration::from_secs(600))?;
            Ok(())
        }),
        host("hangs_in_worker", |cx| {
            let node = cx.node().sub_workers(1).build()?;
            let gate = Gate::new()?;
            let there = gate.path.clone();
            let hang = node.register_fn("hang", move |_: &facade::Args| {
                open_gate(&there)?;
                stuck_in_this_function().map_err(|failure| failure.to_string().into())
            })?;
            node.init()?;
            let submit = |orch: &mut facade::Orchestrator<'_>| {
                let task = orch.submit_sub(&hang, facade::args().scalar(1_u32));
                task.map(drop)
            };
            let run = node.submit(submit)?;
            pass_gate(&gate.path)?;
            cx.time_is_over();
            Ok(run.wait()?)
        }),
        host("hangs_in_spawned_worker", |cx| {
            let spawned = cx.node().sub_workers(1).start_mode(StartMode::Spawn);
            let node = spawned.build()?;
            let hang = node.register_fn("hang", |args: &facade::Args| {
                args.output::<u32>(0)?[0] = 1;
                stuck_in_this_function().map_err(|failure| failure.to_string().into())
            })?;
            node.init()?;
            let x = node.buffer::<u32>(1)?;
            let run = node.submit(|orch| {
                let task = orch.submit_sub(&hang, facade::args().output(&x));
                task.map(drop)
            })?;
            cx.time_is_over();
            Ok(run.wait()?)
        }),
        host("hangs_with_full_output", |cx| {
            print_a_megabyte();
            cx.time_is_over();
            stuck_in_this_function()
        }),
        host("ignores_sigterm", |cx| {
            block_sigterm();
            cx.time_is_over();
            stuck_in_this_function()
        }),
        host("leaves_on_sigterm_alone", |cx| {
            std::mem::forget(stuck_child(block_sigterm)?);
            cx.time_is_over();
            stuck_in_this_function()
        }),
        host("hangs_with_escaped_child", |cx| {
            std::mem::forget(stuck_child(leave_the_group)?);
            cx.time_is_over();
            stuck_in_this_function()
        }),
        host("hangs_with_orphan", |cx| {
            orphan()?;
            cx.time_is_over();
            stuck_in_this_function()
        }),
        host("stops_itself", |cx| {
            cx.time_is_over();
            let _ = raise(Signal::SIGSTOP);
            stuck_in_this_function()
        }),
        host("leaks", |_| {
            std::mem::forget(stuck_child(|| ())?);
            Ok(())
        }),
        host("leaks_escaped", |_| {
            std::mem::forget(stuck_child(leave_the_group)?);
            Ok(())
        }),
    ];
    plain
        .into_iter()
        .chain(stuck)
        .chain(comparing())
        .chain(with_devices())
        .collect()
}

fn comparing() -> Vec<Scene> {
    vec![
        doubling("right", |cx| double(cx, |_| ())),
        doubling("wrong", |cx| {
            double(cx, |twice| {
                twice[3] += 1.0;
                twice[5] = f32::NAN;
            })
        }),
        doubling("wrong_and_dropped", |cx| {
            let _ = double(cx, |twice| twice[3] += 1.0);
            Ok(())
        }),
        doubling("wrong_and_once_more", |cx| {
            let first = double(cx, |twice| twice[3] += 1.0);
            double(cx, |_| ())?;
            println!("it was {}", if first.is_err() { "wrong" } else { "right" });
            Ok(())
        }),
        Scene::new("compares_nothing", |_| Ok(()))
            .case(Case::new("case").devices(0))
            .reference(|_, _| Ok(Tensors::new())),
        Scene::new("empty_output", |cx| {
            cx.rounds(|round| round.produced("y", HostTensor::new::<f32>(&[], &[0])?))
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| Ok(Tensors::new().with("y", HostTensor::new::<f32>(&[], &[0])?))),
        Scene::new("one_empty_output", |cx| {
            cx.rounds(|round| {
                round.produced("y", HostTensor::zeros::<f32>(&[2])?)?;
                round.produced("z", HostTensor::zeros::<f32>(&[0])?)
            })
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| {
            let y = Tensors::new().with("y", HostTensor::zeros::<f32>(&[2])?);
            Ok(y.with("z", HostTensor::zeros::<f32>(&[0])?))
        }),
        Scene::new("other_shape", |cx| {
            cx.rounds(|round| round.produced("y", HostTensor::zeros::<f32>(&[2, 3])?))
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| Ok(Tensors::new().with("y", HostTensor::zeros::<f32>(&[3, 2])?))),
        Scene::new("other_type", |cx| {
            cx.rounds(|round| round.produced("y", HostTensor::zeros::<f32>(&[2])?))
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| Ok(Tensors::new().with("y", HostTensor::zeros::<i32>(&[2])?))),
        Scene::new("other_name", |cx| {
            cx.rounds(|round| round.produced("y", HostTensor::zeros::<f32>(&[2])?))
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| Ok(Tensors::new().with("z", HostTensor::zeros::<f32>(&[2])?))),
        Scene::new("one_name_twice", |cx| {
            let node = cx.node().sub_workers(1).build()?;
            node.init()?;
            cx.output::<f32>(&node, "y", &[2])?;
            cx.output::<f32>(&node, "y", &[2])?;
            Ok(())
        })
        .case(Case::new("case").devices(0)),
        Scene::new("produces_one_name_twice", |cx| {
            cx.rounds(|round| {
                round.produced("y", HostTensor::zeros::<f32>(&[2])?)?;
                round.produced("y", HostTensor::zeros::<f32>(&[2])?)
            })
        })
        .case(Case::new("case").devices(0)),
        Scene::new("writes_the_first_round_only", |cx| {
            let node = cx.node().sub_workers(1).build()?;
            let ones = node.register_fn("ones", |args: &facade::Args| {
                args.output::<f32>(0)?.fill(1.0);
                Ok(())
            })?;
            node.init()?;
            let z = cx.output::<f32>(&node, "z", &[4])?;
            cx.rounds(|round| match round.number() {
                0 => node.run(|orch| orch.submit_sub(&ones, facade::args().output(&z)).map(drop)),
                _ => Ok(()),
            })?;
            Ok(node.close()?)
        })
        .case(Case::new("case").devices(0))
        .reference(|_, _| Ok(Tensors::new().with("z", HostTensor::new(&[1.0_f32; 4], &[4])?))),
    ]
}

/// `y = 2 x`, if the body does that.
fn doubling(name: &'static str, body: fn(&mut SceneContext<'_>) -> Done) -> Scene {
    Scene::new(name, body)
        .inputs(|case| Ok(Tensors::new().with("x", case.random().tensor(&[2, 4], |x| x)?)))
        .reference(|_, inputs| {
            let twice: Vec<f32> = inputs
                .get("x")?
                .elements::<f32>()?
                .iter()
                .map(|x| 2.0 * x)
                .collect();
            Ok(Tensors::new().with("y", HostTensor::new(&twice, &[2, 4])?))
        })
        .tolerance("y", Tolerance::relative(1e-6))
        .case(Case::new("case").devices(0))
}

fn double(cx: &mut SceneContext<'_>, spoil: fn(&mut [f32])) -> Done {
    let mut twice: Vec<f32> = cx
        .inputs()
        .get("x")?
        .elements::<f32>()?
        .iter()
        .map(|x| x + x)
        .collect();
    spoil(&mut twice);
    cx.rounds(|round| round.produced("y", HostTensor::new(&twice, &[2, 4])?))
}

fn with_devices() -> Vec<Scene> {
    vec![
        Scene::new("two_devices", |cx| match cx.devices() {
            [a, b] if a != b => Ok(()),
            other => Err(Failure::new(format!("devices {other:?}"))),
        })
        .case(Case::new("a").devices(2))
        .case(Case::new("b").devices(2))
        .case(Case::new("c").devices(2)),
        Scene::new("nine_devices", |_| Ok(())).case(Case::new("case").devices(9)),
        Scene::new("breaks_a_device", |cx| {
            let devices = cx.devices().to_vec();
            cx.rounds(|_| {
                Err::<(), _>(Failure::device_unusable(
                    devices.clone(),
                    "it does not answer",
                ))
            })
        })
        .case(Case::new("case").devices(1)),
        Scene::new("meets_device_0_broken", |cx| match cx.devices() {
            [0] => Err(Failure::device_unusable([0], "it was broken before")),
            _ => Ok(()),
        })
        .case(Case::new("case").devices(1)),
        Scene::new("after", |_| Ok(()))
            .case(Case::new("a").devices(1))
            .case(Case::new("b").devices(1)),
    ]
}

/// A gate between processes that have nothing else in common: a named pipe, at which each side waits for
/// the other.
struct Gate {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Gate {
    fn new() -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("gate");
        crate::support::make_gate(&path)?;
        Ok(Self { path, _dir: dir })
    }
}

fn open_gate(path: &Path) -> std::io::Result<()> {
    std::fs::write(path, "")
}

fn pass_gate(path: &Path) -> std::io::Result<()> {
    std::fs::read(path).map(drop)
}

/// A child in the group of the case, which follows nobody; it has come up when this returns.
fn stuck_child(before: fn()) -> Result<procfork::Child, Failure> {
    let (mut ready, is_ready) = std::io::pipe()?;
    let options = ForkOptions::new("stuck-child")
        .death_signal(None)
        .give(is_ready.into());
    let child = procfork::fork(options, move |context| {
        before();
        // Closing the gate opens it for the parent.
        drop(context.fds);
        u8::from(stuck_in_this_function().is_err())
    })?;
    ready.read_to_end(&mut Vec::new())?;
    Ok(child)
}

/// A child whose parent has ended, in a group of its own.
fn orphan() -> Done {
    let options = ForkOptions::new("short-lived").death_signal(None);
    let parent = procfork::fork(options, |_| {
        let child = stuck_child(leave_the_group);
        u8::from(child.map(std::mem::forget).is_err())
    })?;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let ended = parent.wait(deadline)?;
    assert_eq!(ended, procfork::ExitCause::Exited(0), "the orphan is there");
    Ok(())
}

fn leave_the_group() {
    let _ = nix::unistd::setsid();
    block_sigterm();
}

/// Named, so that a stack shows them.
#[inline(never)]
fn crash_in_this_function() {
    let _ = raise(Signal::SIGSEGV);
}

#[inline(never)]
fn abort_in_this_function() -> Done {
    std::process::abort()
}

#[inline(never)]
fn panic_in_this_function() -> facade::TaskResult {
    panic!("a worker's panic")
}

#[inline(never)]
fn stuck_in_this_function() -> Done {
    loop {
        thread::sleep(Duration::from_secs(600));
    }
}

fn block_sigterm() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.thread_block().expect("a valid set");
}

fn print_a_megabyte() {
    let mut out = BufWriter::new(std::io::stdout().lock());
    writeln!(out, "the first line").expect("somebody reads");
    for line in 0..16_384 {
        writeln!(out, "{line:063}").expect("somebody reads");
    }
    writeln!(out, "the last line").expect("somebody reads");
    out.flush().expect("somebody reads");
}

/// Lines that each of [`WRITERS`] processes prints, all at once.
pub(crate) const LINES: usize = 10_000;
pub(crate) const WRITERS: usize = 8;

/// ST-2: many short records of several processes.
fn many_writers(_: &mut SceneContext<'_>) -> Done {
    let writer = |number: usize| {
        procfork::fork(ForkOptions::new("writer"), move |_| {
            let mut out = std::io::stdout().lock();
            let all = (0..LINES).try_for_each(|line| writeln!(out, "writer {number} line {line}"));
            u8::from(all.is_err())
        })
    };
    let children: Vec<_> = (0..WRITERS).map(writer).collect::<Result<_, _>>()?;
    for child in children {
        let cause = child.wait(std::time::Instant::now() + Duration::from_secs(20))?;
        if cause.code() != Some(0) {
            return Err(Failure::new(format!("a writer {cause}")));
        }
    }
    Ok(())
}
