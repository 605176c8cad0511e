//! Registering and unregistering callables: before `init` in a table that every process is born with, afterwards by an
//! agreement with every process concerned (module `agreement`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{ChipCallable, Digest};
use lifecycle::{Operation, State};

use super::Worker;
use crate::agreement::{Change, Round};
use crate::args::Args;
use crate::callable::{
    Body, ChipHandle, Entry, FunctionHandle, Handle, OrchestrationHandle, Registry, TaskResult,
};
use crate::config::NodeSpec;
use crate::engine::Engine;
use crate::error::{AgreeCause, CallableError, Error};
use crate::orchestrator::Orchestrator;
use crate::remake::Maker;
use crate::started::Started;

static REGISTER: Operation = Operation::new("register a callable");
static UNREGISTER: Operation = Operation::new("unregister a callable");

impl Worker {
    /// Registers a chip callable: an orchestration with its kernels, run by chip workers.
    ///
    /// Before [`Worker::init`] it is brought up with the chips. Afterwards every chip worker loads it now, or none does: this
    /// waits for the tasks that run, at most for the start limit, and until the first refusal; where workers do not answer at
    /// the end of it, thirty seconds more. Runs that begin later can use it. Its functions must be functions of this program
    /// then, not of a library that was loaded later.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] for a name that is empty or taken, where the tree has no chip worker, or where a worker could not
    /// load it (nothing has changed then); [`Error::State`] while starting, after a failed start, and after a close.
    pub fn register_chip(&self, callable: &'static ChipCallable) -> Result<ChipHandle, Error> {
        let missing = "a chip with `chips` or `devices`";
        let body = Body::Chip(callable);
        let maker = Maker::of_chip(callable);
        self.register(callable.name, body, maker, NodeSpec::has_chip, missing)
    }

    /// Registers a host function, run by sub workers. Before or after [`Worker::init`], as [`Worker::register_chip`].
    ///
    /// The function runs in another process: what it captured it has as a copy, as it was at `init`, and what it changes
    /// nobody else sees, except through its output arguments. One that captured nothing can also run in a child that was
    /// started by [`StartMode::Spawn`](crate::StartMode::Spawn), and can be registered after `init`.
    ///
    /// # Errors
    ///
    /// As [`Worker::register_chip`], where the tree has no sub worker; [`CallableError::Captured`] after `init`.
    pub fn register_fn(
        &self,
        name: &str,
        function: impl Fn(&Args) -> TaskResult + Send + Sync + 'static,
    ) -> Result<FunctionHandle, Error> {
        let missing = "a sub worker with `sub_workers`";
        let maker = Maker::of_function(&function);
        let body = Body::Function(Arc::new(function));
        self.register(name, body, maker, NodeSpec::has_sub, missing)
    }

    /// Registers an orchestration, run by workers below this one that have children of their own. Before or after
    /// [`Worker::init`], as [`Worker::register_chip`].
    ///
    /// # Errors
    ///
    /// As [`Worker::register_fn`], where no worker was added below this one.
    pub fn register_orchestration(
        &self,
        name: &str,
        function: impl Fn(&mut Orchestrator<'_>, &Args) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<OrchestrationHandle, Error> {
        let missing = "a worker below with `worker`";
        let has_node = |spec: &NodeSpec| !spec.children.is_empty();
        let maker = Maker::of_orchestration(&function);
        let body = Body::Orchestration(Arc::new(function));
        self.register(name, body, maker, has_node, missing)
    }

    fn register<K>(
        &self,
        name: &str,
        body: Body,
        maker: Option<Maker>,
        could_run: impl Fn(&NodeSpec) -> bool,
        missing: &'static str,
    ) -> Result<Handle<K>, Error> {
        if !could_run(&self.inner.spec.lock()) {
            let (kind, name) = (body.kind().name(), name.to_owned());
            return Err(CallableError::NoWorker {
                kind,
                name,
                missing,
            }
            .into());
        }
        if self.state() == State::Ready {
            return self.register_later(name, body, maker);
        }
        // Looked at under the lock, which a start takes after it has left `New`: so it sees this callable, or this fails.
        let mut registry = self.inner.registry.lock();
        self.need_new(REGISTER.name())?;
        Ok(registry.insert(name, body, maker)?)
    }

    fn register_later<K>(
        &self,
        name: &str,
        body: Body,
        maker: Option<Maker>,
    ) -> Result<Handle<K>, Error> {
        let _lease = self.lease(&REGISTER)?;
        let _turn = self.inner.changing.lock();
        let started = self.started(REGISTER.name())?;
        let mut registry = Registry::clone(&started.plan.registry());
        let kind = body.kind().name();
        let handle = registry.insert(name, body.clone(), maker.clone())?;
        let name = name.to_owned();
        let Some(maker) = maker else {
            return Err(CallableError::Captured { kind, name }.into());
        };
        let digest = handle.digest();
        let change = Change::Add {
            name: name.clone(),
            maker,
        };
        let back = Change::Remove { digest: digest.0 };
        self.agree(started, &body, &change, Some(&back))
            .map_err(|cause| CallableError::NotAgreed {
                operation: "register",
                kind,
                name,
                cause: Box::new(cause),
            })?;
        started.plan.set_registry(Arc::new(registry));
        Ok(handle)
    }

    /// Unregisters a callable: no process of the tree knows it afterwards, and its name is free.
    ///
    /// Waits for its turn to build a graph and for the tasks that run, at most for the start limit.
    ///
    /// # Errors
    ///
    /// [`Error::Callable`] while an unfinished task names it or may submit it (an orchestration of a worker below may, by
    /// name), for a handle of another worker, and where a worker could not be reached: then nothing has changed.
    /// [`Error::Reentrant`] from inside an orchestration of this worker; [`Error::State`] unless it is new or ready.
    pub fn unregister<K>(&self, handle: &Handle<K>) -> Result<(), Error> {
        if self.state() == State::Ready {
            return self.unregister_later(handle);
        }
        let mut registry = self.inner.registry.lock();
        self.need_new(UNREGISTER.name())?;
        registry.own(handle)?;
        registry.remove(&handle.digest());
        Ok(())
    }

    fn unregister_later<K>(&self, handle: &Handle<K>) -> Result<(), Error> {
        let _lease = self.lease(&UNREGISTER)?;
        let started = self.started(UNREGISTER.name())?;
        // Before the lock of changes: an orchestration that is being built may be waiting for that one.
        super::begin_build(&started.engine, UNREGISTER.name())?;
        let _turn = Turn(&started.engine);
        self.remove(started, handle)
    }

    /// Nobody builds a graph meanwhile.
    fn remove<K>(&self, started: &Started, handle: &Handle<K>) -> Result<(), Error> {
        let _turn = self.inner.changing.lock();
        let registry = started.plan.registry();
        let entry = registry.own(handle)?;
        refuse_in_use(started, &registry, handle, entry)?;
        let change = Change::Remove {
            digest: handle.digest().0,
        };
        let back = entry.maker.clone().map(|maker| Change::Add {
            name: entry.name.to_string(),
            maker,
        });
        let agreed = self.agree(started, &entry.body, &change, back.as_ref());
        agreed.map_err(|cause| CallableError::NotAgreed {
            operation: "unregister",
            kind: entry.body.kind().name(),
            name: entry.name.to_string(),
            cause: Box::new(cause),
        })?;
        let mut changed = Registry::clone(&registry);
        changed.remove(&handle.digest());
        started.plan.set_registry(Arc::new(changed));
        Ok(())
    }

    fn agree(
        &self,
        started: &Started,
        body: &Body,
        change: &Change,
        back: Option<&Change>,
    ) -> Result<(), AgreeCause> {
        let limit: Duration = self.inner.spec.lock().limits.start;
        let kinds = started.plan.kinds();
        let deadline = Instant::now() + limit;
        let round = Round::new(&started.engine, kinds, body, limit, deadline);
        round.prepare(change)?;
        round.commit(back)
    }
}

/// The turn to build a graph, given back also on a panic.
struct Turn<'a>(&'a Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.change(|core| self.0.end_build(core));
    }
}

/// A callable that an unfinished task names stays, and so does one that an unfinished orchestration may name.
fn refuse_in_use<K>(
    started: &Started,
    registry: &Registry,
    handle: &Handle<K>,
    entry: &Entry,
) -> Result<(), CallableError> {
    let may_submit = |digest: &Digest| {
        let entry = registry.find(digest);
        entry.is_some_and(|entry| matches!(entry.body, Body::Orchestration(_)))
    };
    let target = handle.digest();
    let core = started.engine.core();
    let digests = core.unfinished();
    let n_tasks = digests.filter(|digest| *digest == target || may_submit(digest));
    match n_tasks.count() {
        0 => Ok(()),
        n_tasks => Err(CallableError::InUse {
            kind: entry.body.kind().name(),
            name: entry.name.to_string(),
            n_tasks,
        }),
    }
}
