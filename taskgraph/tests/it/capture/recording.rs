//! What a body becomes, and what cannot become anything.

use taskgraph::capture::{ArgSource, BoundaryScalar, ScalarSource};

use super::*;

fn part(id: u64, range: std::ops::Range<u64>, tag: Tag) -> TaskArgs {
    let mut args = TaskArgs::new();
    args.tensor(tensor(id).slice(0, range).unwrap(), tag)
        .unwrap();
    args
}

#[test]
fn edges_are_those_of_the_body_alone() {
    let boundary = [(1, Tag::Input), (2, Tag::InOut)];
    let made = definition(
        &boundary,
        &[
            &[(1, Tag::Input), (2, Tag::InOut)],
            &[(1, Tag::Input)],
            &[(2, Tag::Input)],
            &[(2, Tag::Output)],
        ],
    );
    let expected = [
        vec![],
        vec![],
        vec![(0, true)],
        vec![(0, false), (2, false)],
    ];
    assert_eq!(fan_in(&made), expected);
    assert_eq!(made.roots(), [0, 1]);
    let fan_out: Vec<_> = made.node(0).fan_out().collect();
    assert_eq!(fan_out, [(2, true), (3, false)]);
}

#[test]
fn every_argument_has_its_source() {
    let boundary = args(&[(1, Tag::Input), (2, Tag::Output)]);
    let mut recorder = recorder(&boundary);
    let between = recorder.alloc(DType::U8, &[10, 10]).unwrap();
    let mut first = part(1, 40..60, Tag::Input);
    first.tensor(between, Tag::Output).unwrap();
    let mut second = TaskArgs::new();
    second
        .tensor(between.slice(0, 3..5).unwrap(), Tag::Input)
        .unwrap();
    second.tensor(tensor(2), Tag::Output).unwrap();
    on(&mut recorder, 0, &first).unwrap();
    on(&mut recorder, 1, &second).unwrap();
    let made = recorder.finish().unwrap();
    let sources: Vec<_> = made
        .nodes()
        .flat_map(|node| node.args(0).map(|arg| arg.source))
        .collect();
    let expected = [
        ArgSource::View {
            index: 0,
            offset: 40,
        },
        ArgSource::OwnOutput { allocation: 0 },
        ArgSource::Internal {
            allocation: 0,
            offset: 30,
        },
        ArgSource::Boundary { index: 1 },
    ];
    assert_eq!(sources, expected);
    assert_eq!(made.heap_bytes(), 128);
    assert!(!made.reads_unwritten());
}

#[test]
fn memory_that_is_read_before_it_is_known_to_be_written_is_noted() {
    for (written, is_noted) in [(0..100, false), (0..99, true), (0..50, true)] {
        let mut recorder = recorder(&TaskArgs::new());
        let memory = recorder.alloc(DType::U8, &[100]).unwrap();
        let mut write = TaskArgs::new();
        write
            .tensor(memory.slice(0, written).unwrap(), Tag::Output)
            .unwrap();
        let mut read = TaskArgs::new();
        read.tensor(memory, Tag::Input).unwrap();
        on(&mut recorder, 0, &write).unwrap();
        on(&mut recorder, 0, &read).unwrap();
        assert_eq!(recorder.finish().unwrap().reads_unwritten(), is_noted);
    }
}

#[test]
fn tiles_that_are_written_side_by_side_are_known_together() {
    let mut recorder = recorder(&TaskArgs::new());
    let memory = recorder.alloc(DType::U8, &[100]).unwrap();
    for range in [60..100, 0..30, 30..60] {
        let mut write = TaskArgs::new();
        write
            .tensor(memory.slice(0, range).unwrap(), Tag::Output)
            .unwrap();
        on(&mut recorder, 0, &write).unwrap();
    }
    let mut read = TaskArgs::new();
    read.tensor(memory, Tag::Input).unwrap();
    on(&mut recorder, 0, &read).unwrap();
    assert!(!recorder.finish().unwrap().reads_unwritten());
}

#[test]
fn scalars_are_constants_or_forwarded() {
    let mut boundary = args(&[(1, Tag::InOut)]);
    boundary.scalar(7u32).scalar(2.5f32);
    let mut recorder = recorder(&boundary);
    let mut task = args(&[(1, Tag::InOut)]);
    task.scalar(recorder.scalar(1).unwrap()).scalar(9u64);
    task.scalar(BoundaryScalar::eager(Scalar::Bool(true)));
    on(&mut recorder, 0, &task).unwrap();
    assert!(recorder.scalar(2).is_none());
    let made = recorder.finish().unwrap();
    let sources: Vec<_> = made.node(0).scalars(0).collect();
    let expected = [
        ScalarSource::Boundary(1),
        ScalarSource::Constant(Scalar::U64(9)),
        ScalarSource::Constant(Scalar::Bool(true)),
    ];
    assert_eq!(sources, expected);
}

#[test]
fn a_scalar_of_another_recording_is_refused() {
    let mut boundary = TaskArgs::new();
    boundary.scalar(1u32);
    let other = Recorder::new(NonZeroU32::MAX, &boundary, &[]).unwrap();
    let mut task = TaskArgs::new();
    task.scalar(other.scalar(0).unwrap());
    let refused = on(&mut recorder(&boundary), 0, &task);
    assert_eq!(
        refused,
        Err(NotRecordable::ForeignScalar { node: 0, scalar: 0 })
    );
}

#[test]
fn bytes_outside_of_the_boundary_are_refused() {
    let inside = part(1, 10..50, Tag::InOut);
    for (outside, argument) in [
        (part(1, 0..11, Tag::Input), 0),
        (part(1, 49..51, Tag::Input), 0),
        (args(&[(1, Tag::NoDep)]), 0),
        (args(&[(9, Tag::Input)]), 0),
    ] {
        let mut recorder = recorder(&inside);
        on(&mut recorder, 0, &inside).unwrap();
        let refused = on(&mut recorder, 0, &outside).unwrap_err();
        let buffer = outside.accesses()[0].buffer;
        assert_eq!(
            refused,
            NotRecordable::Outside {
                node: 1,
                argument,
                buffer
            }
        );
    }
}

#[test]
fn parts_of_a_strided_boundary_are_found() {
    let matrix = tensor(1).reshape(&[10, 10]).unwrap();
    let columns = matrix.slice(1, 2..8).unwrap();
    let mut boundary = TaskArgs::new();
    boundary.tensor(columns, Tag::Input).unwrap();
    let mut recorder = recorder(&boundary);
    let row = columns.slice(0, 3..4).unwrap();
    let tile = columns.slice(0, 2..6).unwrap().slice(1, 1..3).unwrap();
    let every_other = columns
        .slice_step(0, 1..10, 2)
        .unwrap()
        .transpose(0, 1)
        .unwrap();
    for inner in [row, tile, every_other] {
        let mut task = TaskArgs::new();
        task.tensor(inner, Tag::Input).unwrap();
        on(&mut recorder, 0, &task).unwrap();
    }
    let mut beside = TaskArgs::new();
    beside
        .tensor(matrix.slice(0, 3..4).unwrap(), Tag::Input)
        .unwrap();
    assert!(matches!(
        on(&mut recorder, 0, &beside),
        Err(NotRecordable::Outside { node: 3, .. })
    ));
}

#[test]
fn a_task_may_do_to_a_tensor_only_what_the_boundary_says() {
    let writes = on(
        &mut recorder(&args(&[(1, Tag::Input)])),
        0,
        &args(&[(1, Tag::InOut)]),
    );
    let direction = NotRecordable::Direction {
        node: 0,
        argument: 0,
        tag: Tag::InOut,
        tensor: 0,
        boundary: Tag::Input,
    };
    assert_eq!(writes, Err(direction));
    let mut outputs = recorder(&args(&[(1, Tag::Output)]));
    let reads = on(&mut outputs, 0, &args(&[(1, Tag::Input)]));
    let unwritten = NotRecordable::UnwrittenOutput {
        node: 0,
        argument: 0,
        tensor: 0,
    };
    assert_eq!(reads, Err(unwritten));
    let mut outputs = recorder(&args(&[(1, Tag::Output)]));
    on(&mut outputs, 0, &args(&[(1, Tag::Output)])).unwrap();
    on(&mut outputs, 0, &args(&[(1, Tag::Input)])).unwrap();
}

#[test]
fn a_node_cannot_come_after_what_is_no_earlier_node() {
    let mut recorder = recorder(&TaskArgs::new());
    let (none, placement) = (TaskArgs::new(), Placement::Sub);
    let members = [&none];
    let first = recorder
        .submit(&NodeSpec::new(0, placement, &members))
        .unwrap();
    let spec = |after| NodeSpec {
        after,
        ..NodeSpec::new(0, placement, &members)
    };
    let (known, unknown) = ([first], [2]);
    recorder.submit(&spec(&known)).unwrap();
    let refused = recorder.submit(&spec(&unknown));
    assert_eq!(refused, Err(NotRecordable::OutsideTask { node: 2 }));
}

#[test]
fn a_predicate_is_an_input_that_is_bound_like_any_other() {
    let boundary = args(&[(1, Tag::InOut)]);
    let mut recorder = recorder(&boundary);
    on(&mut recorder, 0, &args(&[(1, Tag::InOut)])).unwrap();
    let element = tensor(1).slice(0, 5..6).unwrap();
    let (none, placement) = (TaskArgs::new(), Placement::On(WorkerId(0)));
    let members = [&none];
    let predicate = Some((&element, 42));
    let spec = NodeSpec {
        predicate,
        ..NodeSpec::new(0, placement, &members)
    };
    recorder.submit(&spec).unwrap();
    let made = recorder.finish().unwrap();
    let found = made.node(1).predicate().unwrap();
    assert_eq!(
        found.element.source,
        ArgSource::View {
            index: 0,
            offset: 5
        }
    );
    assert_eq!(found.condition, 42);
    assert_eq!(fan_in(&made)[1], [(0, true)]);
    assert!(made.node(0).predicate().is_none());
}

#[test]
fn an_output_is_read_only_where_earlier_nodes_have_written_it() {
    for (written, is_read) in [(0..20, false), (0..79, false), (0..80, true)] {
        let mut recorder = recorder(&args(&[(1, Tag::Output)]));
        on(&mut recorder, 0, &part(1, written, Tag::Output)).unwrap();
        let read = on(&mut recorder, 0, &part(1, 0..80, Tag::Input));
        let unwritten = NotRecordable::UnwrittenOutput {
            node: 1,
            argument: 0,
            tensor: 0,
        };
        assert_eq!(read, if is_read { Ok(1) } else { Err(unwritten) });
    }
}

#[test]
fn an_output_must_be_written_whole() {
    let matrix = tensor(1).reshape(&[10, 10]).unwrap();
    let columns = |range| matrix.slice(1, range).unwrap();
    let rows = |range| matrix.slice(0, range).unwrap();
    for (tag, writes, is_whole) in [
        (Tag::Output, vec![], false),
        (Tag::Output, vec![rows(0..9)], false),
        (Tag::Output, vec![rows(5..10), rows(0..5)], true),
        (Tag::Output, vec![columns(0..4), columns(4..10)], true),
        (Tag::Output, vec![columns(0..4), columns(3..9)], false),
        (Tag::OutputExisting, vec![columns(0..4), rows(0..10)], true),
        (Tag::OutputExisting, vec![columns(0..4)], false),
        (Tag::InOut, vec![columns(0..4)], true),
    ] {
        let mut recorder = recorder(&args(&[(1, tag)]));
        for tensor in writes {
            let mut write = TaskArgs::new();
            write.tensor(tensor, Tag::Output).unwrap();
            on(&mut recorder, 0, &write).unwrap();
        }
        let refused = recorder.finish().err();
        let partial = NotRecordable::PartialOutput { tensor: 0 };
        assert_eq!(refused, (!is_whole).then_some(partial));
    }
}

#[test]
fn what_works_in_place_reads_its_input() {
    let boundary = args(&[(1, Tag::Input), (1, Tag::Output)]);
    let mut recorder = recorder(&boundary);
    on(&mut recorder, 0, &boundary).unwrap();
    on(&mut recorder, 0, &part(1, 0..9, Tag::Input)).unwrap();
    let made = recorder.finish().unwrap();
    let source = |node: u32, at: usize| made.node(node).args(0).nth(at).unwrap().source;
    assert_eq!(source(0, 0), ArgSource::Boundary { index: 0 });
    assert_eq!(source(0, 1), ArgSource::Boundary { index: 1 });
    let (index, offset) = (0, 0);
    assert_eq!(source(1, 0), ArgSource::View { index, offset });
}

#[test]
fn a_member_does_not_read_what_another_member_is_about_to_write() {
    let mut recorder = recorder(&TaskArgs::new());
    let memory = recorder.alloc(DType::U8, &[100]).unwrap();
    let with = |tag| {
        let mut args = TaskArgs::new();
        args.tensor(memory, tag).unwrap();
        args
    };
    let (writes, reads) = (with(Tag::Output), with(Tag::Input));
    let workers = [WorkerId(0), WorkerId(1)];
    let members = [&writes, &reads];
    recorder
        .submit(&NodeSpec::new(0, Placement::Group(&workers), &members))
        .unwrap();
    assert!(recorder.finish().unwrap().reads_unwritten());
}

#[test]
fn a_view_of_nothing_lies_in_the_boundary_like_any_other() {
    let inside = part(1, 10..50, Tag::InOut);
    for (at, is_inside) in [(9, false), (10, true), (50, true), (51, false), (90, false)] {
        let buffer = tensor(1).buffer();
        let nothing = Tensor::strided(buffer, DType::U8, at, &[0], &[1], 100).unwrap();
        let mut task = TaskArgs::new();
        task.tensor(nothing, Tag::Input).unwrap();
        let taken = on(&mut recorder(&inside), 0, &task);
        assert_eq!(taken.is_ok(), is_inside, "{at}: {taken:?}");
    }
}

#[test]
fn a_node_has_a_worker_for_each_member_and_a_block() {
    let (none, workers) = (TaskArgs::new(), [WorkerId(0), WorkerId(1)]);
    let (on, any) = (Placement::On(WorkerId(0)), Placement::AnyOf(&workers));
    for (placement, n_members, n_blocks, is_node) in [
        (on, 1, 1, true),
        (on, 0, 1, false),
        (on, 1, 0, false),
        (any, 2, 1, false),
        (Placement::Group(&workers), 2, 1, true),
        (Placement::Group(&workers), 3, 1, false),
        (Placement::SubGroup(3), 1, 1, true),
        (Placement::SubGroup(3), 4, 1, false),
    ] {
        let members = vec![&none; n_members];
        let spec = NodeSpec {
            n_blocks,
            ..NodeSpec::new(0, placement, &members)
        };
        let taken = recorder(&none).submit(&spec);
        let members = NotRecordable::Members { node: 0, n_members };
        assert_eq!(taken, if is_node { Ok(0) } else { Err(members) });
    }
}

#[test]
fn a_recorder_that_is_used_again_remembers_nothing() {
    let record = |recorder: &mut Recorder, x: u64, y: u64| {
        let between = recorder.alloc(DType::U8, &[100]).unwrap();
        let number = recorder.callable(&[7; 32]);
        for (from, to) in [(tensor(x), between), (between, tensor(y))] {
            let mut args = TaskArgs::new();
            args.tensor(from, Tag::Input).unwrap();
            args.tensor(to, Tag::Output).unwrap();
            let members = [&args];
            let placement = Placement::On(WorkerId(0));
            let spec = NodeSpec::new(number, placement, &members);
            recorder.submit(&spec).unwrap();
        }
        recorder.finish().unwrap()
    };
    let (small, large) = (
        args(&[(1, Tag::Input), (2, Tag::Output)]),
        args(&[(5, Tag::Input), (6, Tag::Output), (7, Tag::Input)]),
    );
    let fresh = record(&mut recorder(&large), 5, 6);
    let mut again = recorder(&small);
    // One recording that ends, and one that is given up.
    record(&mut again, 1, 2);
    again.begin(NonZeroU32::MAX, &small, &[]).unwrap();
    again.alloc(DType::U8, &[3]).unwrap();
    on(&mut again, 3, &args(&[(1, Tag::Input)])).unwrap();
    again.begin(FIRST, &large, &[]).unwrap();
    assert!(again.kept_bytes() > 0);
    assert_eq!(record(&mut again, 5, 6), fresh);
}
