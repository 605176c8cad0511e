//! A driver that leaves without a verdict, under a closer that has joined it.

use super::{World, spawn};
use crate::close::{Claim, CloseError};

#[test]
fn loom_abandoned_attempt() {
    loom::model(|| {
        let world = World::ready();
        world.push(|_, _| Ok(()));
        let deserter = spawn(&world, |world| match world.lifecycle.claim() {
            Ok(Claim::Drive(attempt)) => drop(attempt),
            Ok(Claim::Join(joined)) => assert_eq!(joined.wait(None), Ok(())),
            Ok(Claim::Done) => {}
            Err(error) => panic!("{error}"),
        });
        let verdict = world.close();
        deserter.join().expect("no panic");
        let abandoned = Err(CloseError::Abandoned { attempt: 1 });
        assert!(verdict.is_ok() || verdict == abandoned, "{verdict:?}");
        assert_eq!(world.close(), Ok(()), "a later close drives on");
        assert_eq!(world.released(), 1);
    });
}
