//! What a kernel may and may not get hold of.

use taskgraph::{BufferId, BufferKind, DType};

use super::*;

/// 64 floats with room to misalign, as one allocation.
fn backing() -> Vec<f64> {
    vec![0.0; 32]
}

fn tensor(backing: &mut [f64], offset: usize, dtype: DType, shape: &[u64], tag: Tag) -> CoreTensor {
    let bytes = size_of_val(backing) as u64;
    let buffer = BufferId::new(0, 0, 0, BufferKind::Device);
    let view = Tensor::contiguous(buffer, dtype, shape, bytes).unwrap();
    let start = backing.as_mut_ptr().cast::<u8>().wrapping_add(offset);
    CoreTensor { start, view, tag }
}

fn context<'a>(
    tensors: &'a [CoreTensor],
    scalars: &'a [Scalar],
    (block, n_blocks): (u32, u32),
) -> KernelContext<'a> {
    KernelContext::alone(
        Place {
            tensors,
            scalars,
            block,
            n_blocks,
        },
        Lane::Aiv0,
    )
}

#[track_caller]
fn problem<T>(result: Result<T, KernelError>) -> String {
    match result {
        Ok(_) => panic!("it was allowed"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn inputs_and_outputs_are_held_side_by_side() {
    let mut memory = backing();
    let x = tensor(&mut memory, 0, DType::F32, &[8], Tag::Input);
    let y = tensor(&mut memory, 32, DType::F32, &[8], Tag::Output);
    let tensors = [x, y];
    let cx = context(&tensors, &[], (0, 1));
    let (x, y) = (cx.input::<f32>(0).unwrap(), cx.output::<f32>(1).unwrap());
    y.fill(3.0);
    assert_eq!((x[7], y[7]), (0.0, 3.0));
    assert!(cx.input::<f32>(0).is_ok(), "reading twice is fine");
    assert!(problem(cx.output::<f32>(1)).contains("already holds"));
}

#[test]
fn what_overlaps_a_held_output_is_refused_whatever_argument_names_it() {
    let mut memory = backing();
    let read = tensor(&mut memory, 0, DType::F32, &[8], Tag::Input);
    let written = tensor(&mut memory, 28, DType::F32, &[8], Tag::InOut);
    let tensors = [read, written];
    let cx = context(&tensors, &[], (0, 1));
    let held = cx.output::<f32>(1).unwrap();
    assert!(problem(cx.input::<f32>(0)).contains("already holds"));
    assert!(problem(cx.input::<f32>(1)).contains("already holds"));
    assert_eq!(held.len(), 8);
}

#[test]
fn tags_types_alignment_and_layout_are_checked_and_named() {
    let mut memory = backing();
    let input = tensor(&mut memory, 0, DType::F32, &[8], Tag::Input);
    let output = tensor(&mut memory, 64, DType::F32, &[8], Tag::Output);
    let odd = tensor(&mut memory, 130, DType::F32, &[2], Tag::Input);
    let mut column = tensor(&mut memory, 0, DType::F32, &[4, 4], Tag::Input);
    column.view = column.view.slice(1, 0..1).unwrap();
    let tensors = [input, output, odd, column];
    let cx = context(&tensors, &[], (0, 1));
    let texts = [
        problem(cx.output::<f32>(0)),
        problem(cx.input::<f32>(1)),
        problem(cx.input::<f64>(0)),
        problem(cx.input::<f32>(2)),
        problem(cx.input::<f32>(3)),
        problem(cx.input::<f32>(4)),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r#"
    use tensor argument 0 as f32: the task declared it Input
    use tensor argument 1 as f32: the task declared it Output
    use tensor argument 0 as f64: its elements are f32
    use tensor argument 2 as f32: its first element is not aligned to 4 bytes
    use tensor argument 3 as f32: it is not contiguous (shape [4, 1], strides [4, 1])
    use tensor argument 4 of 4
    "#);
}

#[test]
fn blocks_get_disjoint_shares_that_cover_everything() {
    let mut memory = backing();
    let whole = [tensor(&mut memory, 0, DType::F32, &[10], Tag::Output)];
    let lengths: Vec<usize> = (0..4)
        .map(|block| {
            let cx = context(&whole, &[], (block, 4));
            assert!(problem(cx.output::<f32>(0)).contains("use output_block"));
            assert!(cx.output_range::<f32>(0, 0..10).is_err());
            let share = cx.output_block::<f32>(0).unwrap();
            share.iter_mut().for_each(|x| *x += 1.0);
            share.len()
        })
        .collect();
    assert_eq!(lengths, [3, 3, 2, 2]);
    let cx = context(&whole, &[], (0, 1));
    assert_eq!(cx.output::<f32>(0).unwrap(), [1.0; 10]);
}

#[test]
fn scalars_come_back_as_the_type_they_were_given_as() {
    let scalars = [Scalar::F32(1.5), Scalar::I64(-2)];
    let cx = context(&[], &scalars, (0, 1));
    assert_eq!(cx.scalar::<f32>(0).unwrap(), 1.5);
    assert_eq!(cx.scalar::<i64>(1).unwrap(), -2);
    assert_eq!(
        problem(cx.scalar::<u64>(1)),
        "use scalar argument 1 as u64: it is I64(-2)"
    );
    assert_eq!(problem(cx.scalar::<u64>(2)), "use scalar argument 2 of 2");
}

#[test]
fn what_several_blocks_update_is_read_in_the_own_share_only() {
    let mut memory = backing();
    let tensors = [
        tensor(&mut memory, 0, DType::F32, &[10], Tag::InOut),
        tensor(&mut memory, 64, DType::F32, &[10], Tag::Input),
    ];
    let cx = context(&tensors, &[], (1, 2));
    assert!(problem(cx.input::<f32>(0)).contains("2 blocks share it"));
    assert!(problem(cx.input_range::<f32>(0, 4..6)).contains("5..10 is this one's"));
    assert_eq!(cx.input_range::<f32>(0, 5..10).unwrap().len(), 5);
    assert_eq!(
        cx.input::<f32>(1).unwrap().len(),
        10,
        "what nobody writes is read whole"
    );
    assert!(problem(cx.store(0, &[0.0_f32; 10])).contains("2 blocks share it"));
}

#[test]
fn slices_end_at_the_next_synchronization() {
    let mut memory = backing();
    let tensors = [tensor(&mut memory, 0, DType::F32, &[10], Tag::InOut)];
    let mut cx = context(&tensors, &[], (0, 1));
    cx.output::<f32>(0).unwrap().fill(2.0);
    assert!(
        cx.input::<f32>(0).is_err(),
        "the loan lasts, though the slice does not"
    );
    cx.sync().unwrap();
    assert_eq!(cx.input::<f32>(0).unwrap(), [2.0; 10]);
}

#[test]
fn tiles_are_loaded_and_stored_row_by_row() {
    let mut memory = backing();
    let mut matrix = tensor(&mut memory, 0, DType::F32, &[4, 5], Tag::InOut);
    let tile = matrix.view.slice(0, 1..3).unwrap().slice(1, 2..5).unwrap();
    let (start, view) = (matrix.start.wrapping_add(tile.byte_offset() as usize), tile);
    {
        let all = [matrix];
        let cx = context(&all, &[], (0, 1));
        let values = cx.output::<f32>(0).unwrap();
        values
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = i as f32);
    }
    matrix.tag = Tag::Input;
    let tensors = [
        CoreTensor {
            start,
            view,
            tag: Tag::InOut,
        },
        matrix,
    ];
    let mut cx = context(&tensors, &[], (0, 1));
    let mut loaded = [0.0_f32; 6];
    cx.load(0, &mut loaded).unwrap();
    assert_eq!(loaded, [7.0, 8.0, 9.0, 12.0, 13.0, 14.0]);
    cx.store(0, &loaded.map(|x| -x)).unwrap();
    let row = cx.input_range::<f32>(1, 5..10).unwrap();
    assert_eq!(row, [5.0, 6.0, -7.0, -8.0, -9.0]);
    assert!(
        problem(cx.store(0, &loaded)).contains("already holds"),
        "while a slice overlaps"
    );
    cx.sync().unwrap();
    assert!(problem(cx.load(0, &mut [0.0_f32; 5])).contains("6 elements, the other side 5"));
}

proptest::proptest! {
    #[test]
    fn shares_cover_everything_once_in_order(n in 0_usize..1000, blocks in 1_usize..80) {
        let shares: Vec<_> = (0..blocks).map(|block| share(block, blocks, n)).collect();
        let covered: Vec<usize> = shares.iter().cloned().flatten().collect();
        proptest::prop_assert_eq!(covered, (0..n).collect::<Vec<_>>());
        let lengths = shares.iter().map(|share| share.len());
        let (least, most) = (lengths.clone().min(), lengths.max());
        proptest::prop_assert!(most.unwrap() - least.unwrap() <= 1);
    }
}
