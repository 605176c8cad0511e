//! Random bodies: a boundary, allocations, and tasks of every kind.

use taskgraph::capture::BoundaryScalar;
use taskgraph::*;

/// Rows, and columns, of every buffer.
pub(super) const SIDE: u64 = 6;
/// Bytes of every buffer of a boundary; its tensors lie anywhere in it.
const BACKING: u64 = 4 * SIDE * SIDE;
pub(super) const WORKERS: u32 = 3;
pub(super) const SUBS: u32 = 2;

/// A generator of numbers, the same for each seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// What a task names: a tensor of the boundary or an allocation, and a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) base: usize,
    rows: (u64, u64),
    columns: (u64, u64),
    pub(super) tag: Tag,
}

/// Where a task runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    On(u32),
    Any,
    Group,
    Sub,
    SubGroup,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) place: Place,
    /// What each member names.
    pub(super) members: Vec<Vec<Part>>,
    pub(super) after: Option<usize>,
    scalar: Option<Result<usize, u64>>,
    /// The part whose first element decides whether it runs.
    only_if: Option<Part>,
    pub(super) is_manual: bool,
}

/// Boundary tensors as parts of buffers, allocations, tasks, and perhaps one that fails.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) boundary: Vec<Part>,
    pub(super) n_allocations: usize,
    pub(super) tasks: Vec<Task>,
    pub(super) fails: Option<usize>,
}

/// Where the tensors of a boundary lie: a buffer for each, and how many bytes in.
pub(super) type Layout = Vec<(u64, u64)>;

/// A buffer of intermediate memory.
pub(super) fn matrix(owner: u64, id: u64) -> Tensor {
    let buffer = BufferId::new(owner, id, 0, BufferKind::Shared);
    Tensor::contiguous(buffer, DType::U8, &[SIDE, SIDE], SIDE * SIDE).unwrap()
}

fn cut(base: &Tensor, part: &Part) -> Tensor {
    let clamp = |(a, b): (u64, u64), n: u64| match n {
        0 => 0..0,
        _ => a % n..(a % n + b).min(n),
    };
    let rows = clamp(part.rows, base.shape()[0]);
    let columns = clamp(part.columns, base.shape()[1]);
    base.slice(0, rows).unwrap().slice(1, columns).unwrap()
}

/// The first element, if there is one.
fn first(tensor: &Tensor) -> Option<Tensor> {
    tensor.slice(0, 0..1).ok()?.slice(1, 0..1).ok()
}

fn random_part(random: &mut Random, base: usize, tags: &[Tag]) -> Part {
    let mut range = || match random.below(3) {
        0 => (0, SIDE),
        _ => (random.below(SIDE), 1 + random.below(SIDE)),
    };
    Part {
        base,
        rows: range(),
        columns: range(),
        tag: random.pick(tags),
    }
}

fn random_task(random: &mut Random, number: u64, n_bases: u64) -> Task {
    const TAGS: [Tag; 8] = [
        Tag::Input,
        Tag::Input,
        Tag::Input,
        Tag::Output,
        Tag::Output,
        Tag::InOut,
        Tag::OutputExisting,
        Tag::NoDep,
    ];
    let place = match random.below(10) {
        0 => Place::Any,
        1 => Place::Group,
        2 => Place::Sub,
        3 => Place::SubGroup,
        _ => Place::On(random.below(u64::from(WORKERS)) as u32),
    };
    let n_members = match place {
        Place::Group | Place::SubGroup => 2,
        _ => 1,
    };
    let mut part = |tags: &[Tag]| {
        let base = random.below(n_bases) as usize;
        random_part(random, base, tags)
    };
    let members = (0..n_members)
        .map(|_| (0..=part(&TAGS).rows.0 % 3).map(|_| part(&TAGS)).collect())
        .collect();
    let element = part(&[Tag::Input]);
    Task {
        place,
        members,
        after: (number > 0 && random.below(6) == 0).then(|| random.below(number) as usize),
        scalar: match random.below(3) {
            0 => Some(Ok(random.below(2) as usize)),
            1 => Some(Err(random.below(100))),
            _ => None,
        },
        only_if: (random.below(6) == 0).then_some(element),
        is_manual: random.below(40) == 0,
    }
}

/// The body of a seed, and where its boundary lies when it is recorded.
pub(super) fn random_body(seed: u64) -> (Body, Layout) {
    const TAGS: [Tag; 6] = [
        Tag::Input,
        Tag::InOut,
        Tag::InOut,
        Tag::Output,
        Tag::OutputExisting,
        Tag::NoDep,
    ];
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let boundary: Vec<_> = (0..1 + random.below(4))
        .map(|_| random_part(&mut random, 0, &TAGS))
        .collect();
    let layout = random_layout(&mut random, boundary.len());
    let n_allocations = random.below(3) as usize;
    let n_bases = boundary.len() as u64 + n_allocations as u64;
    let mut tasks = Vec::new();
    // Outputs are to be written whole, most of them before anything else.
    for (base, outer) in boundary.iter().enumerate() {
        if matches!(outer.tag, Tag::Output | Tag::OutputExisting) && random.below(8) > 0 {
            tasks.push(fill(base, random.below(u64::from(WORKERS)) as u32));
        }
    }
    for _ in 0..1 + random.below(9) {
        let number = tasks.len() as u64;
        tasks.push(random_task(&mut random, number, n_bases));
    }
    let n_tasks = tasks.len() as u64;
    let body = Body {
        boundary,
        n_allocations,
        tasks,
        fails: (random.below(5) == 0).then(|| random.below(n_tasks) as usize),
    };
    (body, layout)
}

/// A task that writes all of a tensor.
fn fill(base: usize, worker: u32) -> Task {
    let whole = Part {
        base,
        rows: (0, SIDE),
        columns: (0, SIDE),
        tag: Tag::Output,
    };
    Task {
        place: Place::On(worker),
        members: vec![vec![whole]],
        after: None,
        scalar: Some(Ok(0)),
        only_if: None,
        is_manual: false,
    }
}

/// Anywhere in a few buffers.
pub(super) fn random_layout(random: &mut Random, n: usize) -> Layout {
    let place = |random: &mut Random| {
        let offset = random.pick(&[0, 0, 1, SIDE, 3 * SIDE, SIDE * SIDE, 2 * SIDE * SIDE + 1]);
        (random.below(3), offset)
    };
    (0..n).map(|_| place(random)).collect()
}

/// The same, but for what no contract knows of.
pub(super) fn moved(layout: &Layout, random: &mut Random) -> Layout {
    let by = random.pick(&[0, 1, 7, SIDE]);
    layout
        .iter()
        .map(|(buffer, offset)| (2 - buffer, offset + by))
        .collect()
}

/// Each in a buffer of its own.
pub(super) fn apart(layout: &Layout) -> Layout {
    (0..).zip(layout).map(|(at, _)| (at, 2 * at)).collect()
}

/// What a task is given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) members: Vec<TaskArgs>,
    pub(super) element: Option<Tensor>,
}

impl Given {
    pub(super) fn accesses(&self) -> Vec<Access> {
        let members = self.members.iter().flat_map(|args| args.accesses());
        let element = self.element.iter().map(|it| Access::new(it, Tag::Input));
        members.copied().chain(element).collect()
    }

    pub(super) fn members(&self) -> Vec<&TaskArgs> {
        self.members.iter().collect()
    }
}

impl Body {
    /// The boundary in buffers of one owner; `None` when two outputs of it overlap.
    pub(super) fn boundary(
        &self,
        owner: u64,
        layout: &Layout,
        scalars: [u64; 2],
    ) -> Option<TaskArgs> {
        let mut args = TaskArgs::new();
        for (part, (buffer, offset)) in self.boundary.iter().zip(layout) {
            let buffer = BufferId::new(owner, *buffer, 0, BufferKind::Shared);
            let (shape, strides) = ([SIDE, SIDE], [SIDE, 1]);
            let base = Tensor::strided(buffer, DType::U8, *offset, &shape, &strides, BACKING);
            args.tensor(cut(&base.unwrap(), part), part.tag).ok()?;
        }
        args.scalar(scalars[0]).scalar(scalars[1]);
        Some(args)
    }

    /// What a task is given over these bases; `None` for one that writes a byte twice, or whose members are in each
    /// other's way.
    pub(super) fn given(
        &self,
        number: usize,
        bases: &[Tensor],
        scalars: [BoundaryScalar; 2],
    ) -> Option<Given> {
        let task = &self.tasks[number];
        let mut members: Vec<TaskArgs> = Vec::new();
        for parts in &task.members {
            let mut args = TaskArgs::new();
            for part in parts {
                args.tensor(cut(&bases[part.base], part), part.tag).ok()?;
            }
            match task.scalar {
                Some(Ok(index)) => args.scalar(scalars[index]),
                Some(Err(value)) => args.scalar(value),
                None => &mut args,
            };
            let others = members.iter().flat_map(|other| other.accesses());
            let meets = |other: &Access| args.accesses().iter().any(|it| it.conflicts_with(other));
            if others.into_iter().any(meets) {
                return None;
            }
            members.push(args);
        }
        let element = task
            .only_if
            .map(|part| first(&cut(&bases[part.base], &part)));
        let element = match element {
            Some(None) => return None,
            element => element.flatten(),
        };
        // Here each member looks at the element by itself, so none may write it for another.
        let read = element.map(|it| Access::new(&it, Tag::Input));
        let writes = |read: Access| {
            let mut accesses = members.iter().flat_map(|args| args.accesses());
            accesses.any(|it| it.conflicts_with(&read))
        };
        if members.len() > 1 && read.is_some_and(writes) {
            return None;
        }
        Some(Given { members, element })
    }

    /// Everything that tasks name: the boundary, and allocations of another owner.
    pub(super) fn bases(&self, boundary: &TaskArgs, allocations: u64) -> Vec<Tensor> {
        let outer = boundary.tensors().iter().map(|arg| arg.tensor);
        let inner = (0..self.n_allocations as u64).map(|at| matrix(allocations, at));
        outer.chain(inner).collect()
    }

    /// The tasks that can be submitted at all: those that write no byte twice, and nothing read only.
    pub(super) fn prune(mut self, layout: &Layout) -> Option<Body> {
        let boundary = self.boundary(1, layout, [0, 0])?;
        let bases = self.bases(&boundary, 2);
        let scalars = [0u64, 0].map(|value| BoundaryScalar::eager(value.into()));
        let writes_input = |task: &Task| {
            task.members.iter().flatten().any(|part| {
                let outer = self.boundary.get(part.base);
                part.tag.writes() && outer.is_some_and(|outer| outer.tag == Tag::Input)
            })
        };
        let is_good = |&at: &usize| {
            !writes_input(&self.tasks[at]) && self.given(at, &bases, scalars).is_some()
        };
        let good: Vec<usize> = (0..self.tasks.len()).filter(is_good).collect();
        let place = |at: usize| good.iter().position(|&it| it == at);
        let tasks = good.iter().map(|&at| {
            let mut task = self.tasks[at].clone();
            task.after = task.after.and_then(place);
            task
        });
        let (tasks, fails) = (tasks.collect(), self.fails.and_then(place));
        (self.tasks, self.fails) = (tasks, fails);
        (!self.tasks.is_empty()).then_some(self)
    }

    /// Whether its results do not hang on who comes first.
    pub(super) fn is_ordered(&self) -> bool {
        !self.tasks.iter().any(|task| task.is_manual)
    }

    pub(super) fn has_output(&self) -> bool {
        let mut tags = self.boundary.iter().map(|part| part.tag);
        tags.any(|tag| matches!(tag, Tag::Output | Tag::OutputExisting))
    }
}

/// Calls `then` with the placement of a task.
pub(super) fn with_placement<R>(place: Place, then: impl FnOnce(Placement<'_>) -> R) -> R {
    let all = [WorkerId(0), WorkerId(1), WorkerId(2)];
    then(match place {
        Place::On(worker) => Placement::On(WorkerId(worker)),
        Place::Any => Placement::AnyOf(&all[1..]),
        Place::Group => Placement::Group(&all[..2]),
        Place::Sub => Placement::Sub,
        Place::SubGroup => Placement::SubGroup(2),
    })
}
