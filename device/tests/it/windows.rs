//! Windows: two chips, one memory.

use std::fs::File;
use std::os::fd::AsFd;

use device::{
    AddressProblem, Arch, Chip, ChipArgs, DeviceAddress, DeviceError, DeviceTensor, OpenOptions,
    Platform, SimOptions, Window, WindowSide, window_stride,
};
use taskgraph::DType;

use crate::support::FOUR_TASKS;

const BYTES: u64 = 4096;

fn shared() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(2 * window_stride(BYTES).unwrap()).unwrap();
    file
}

fn chip(id: u32, memory_bytes: u64) -> Box<dyn Chip> {
    let sim = SimOptions {
        memory_bytes,
        ..SimOptions::default()
    };
    let options = OpenOptions {
        sim,
        ..OpenOptions::default()
    };
    device::open(Platform::Sim(Arch::A2a3), id, &options).unwrap()
}

fn window(memory: &File, rank: u64, side: WindowSide) -> Window<'_> {
    Window {
        memory: memory.as_fd(),
        offset: rank * window_stride(BYTES).unwrap(),
        bytes: BYTES,
        side,
    }
}

#[test]
fn what_one_chip_writes_into_its_window_a_kernel_of_another_reads() {
    let memory = shared();
    let (mut a, mut b) = (chip(0, 1 << 20), chip(1, 1 << 20));
    let home = a.map_window(&window(&memory, 1, WindowSide::Home)).unwrap();
    let peer = b.map_window(&window(&memory, 1, WindowSide::Peer)).unwrap();
    assert_eq!(home, peer, "chips hand out equal addresses");
    let mut zeroes = [1; 16];
    b.copy_from(&mut zeroes, peer).unwrap();
    assert_eq!(zeroes, [0; 16]);

    a.copy_to(home, bytemuck::bytes_of(&[3.0_f32, 1.0, 5.0, 2.0]))
        .unwrap();
    let slot = b.register(&FOUR_TASKS).unwrap();
    let at = |offset: u64| {
        DeviceTensor::contiguous(DeviceAddress(peer.0 + offset), DType::F32, &[2]).unwrap()
    };
    let args = ChipArgs::new()
        .with_tensor(at(0))
        .with_tensor(at(8))
        .with_tensor(at(16))
        .with_scalar(2.0_f32);
    device::run(&mut *b, slot, args).unwrap();
    let mut out = [0.0_f32; 2];
    a.copy_from(bytemuck::bytes_of_mut(&mut out), DeviceAddress(home.0 + 16))
        .unwrap();
    assert_eq!(out, [2.0 * (9.0 - 25.0), 2.0 * (1.0 - 4.0)]);
}

#[test]
fn a_window_is_unmapped_and_not_freed_and_its_end_is_checked() {
    let memory = shared();
    let mut chip = chip(0, 1 << 20);
    let base = chip
        .map_window(&window(&memory, 0, WindowSide::Home))
        .unwrap();
    let problem = |outcome: Result<(), DeviceError>| match outcome.unwrap_err() {
        DeviceError::Address { problem, .. } => problem,
        other => panic!("{other}"),
    };
    assert_eq!(problem(chip.free(base)), AddressProblem::Window);
    assert_eq!(
        problem(chip.copy_to(DeviceAddress(base.0 + BYTES - 1), &[0; 2])),
        AddressProblem::PastEnd {
            base: base.0,
            bytes: BYTES
        }
    );
    let inside = DeviceAddress(base.0 + 64);
    assert_eq!(
        problem(chip.unmap_window(inside)),
        AddressProblem::NotWindow
    );
    chip.unmap_window(base).unwrap();
    assert_eq!(problem(chip.unmap_window(base)), AddressProblem::NotWindow);
    assert_eq!(
        problem(chip.copy_to(base, &[0])),
        AddressProblem::NotAllocated
    );
    let malloced = chip.malloc(16).unwrap();
    assert_eq!(
        problem(chip.unmap_window(malloced)),
        AddressProblem::NotWindow
    );
}

#[test]
fn a_window_of_the_chips_own_counts_against_its_memory_and_a_peers_does_not() {
    let memory = shared();
    let mut chip = chip(0, 16 << 10);
    let peer = chip
        .map_window(&window(&memory, 0, WindowSide::Peer))
        .unwrap();
    assert_eq!(chip.memory().unwrap().used_bytes, 0);
    let home = window(&memory, 1, WindowSide::Home);
    let base = chip.map_window(&home).unwrap();
    let report = chip.memory().unwrap();
    assert_eq!((report.used_bytes, report.allocations), (8 << 10, 0));
    assert!(matches!(
        chip.malloc(9 << 10),
        Err(DeviceError::OutOfMemory { .. })
    ));
    chip.malloc(6 << 10).unwrap();
    // Less than is free, but a window takes whole pages.
    let small = Window { bytes: 512, ..home };
    assert!(matches!(
        chip.map_window(&small),
        Err(DeviceError::OutOfMemory { .. })
    ));
    assert!(matches!(
        chip.map_window(&home),
        Err(DeviceError::OutOfMemory { .. })
    ));
    chip.unmap_window(base).unwrap();
    chip.unmap_window(peer).unwrap();
    chip.map_window(&home).unwrap();
}
