//! Tests of the cores: who is free, who belongs to whom.

use super::Cores;
use crate::kernel::CoreType::{Aic, Aiv, Mix};
use crate::platform::{Arch, CoreCounts};

/// Two clusters.
fn small() -> Cores {
    Cores::new(CoreCounts { aic: 2, aiv: 4 }, 1)
}

#[test]
fn cores_are_given_in_turn_and_none_twice() {
    let mut cores = small();
    assert_eq!([(); 3].map(|()| cores.give(Aic)), [Some(0), Some(1), None]);
    assert_eq!(
        [(); 5].map(|()| cores.give(Aiv)),
        [Some(0), Some(1), Some(2), Some(3), None]
    );
    cores.answer(Aic, 1);
    assert_eq!(cores.give(Aic), None, "nobody has seen the answer");
    cores.take(Aic, 1);
    assert_eq!(cores.give(Aic), Some(1));
}

#[test]
fn a_mix_block_holds_its_whole_cluster_and_waits_for_a_free_one() {
    let mut cores = small();
    assert_eq!(cores.give(Aiv), Some(0));
    assert_eq!((cores.give(Mix), cores.give(Mix)), (Some(1), None));
    assert_eq!((cores.give(Aic), cores.give(Aic)), (Some(0), None));
    assert_eq!((cores.give(Aiv), cores.give(Aiv)), (Some(1), None));
    cores.answer(Mix, 1);
    cores.take(Mix, 1);
    assert_eq!([(); 2].map(|()| cores.give(Aiv)), [Some(2), Some(3)]);
    assert_eq!(cores.give(Aic), Some(1));
}

#[test]
fn a_run_begins_with_all_cores_whatever_the_last_one_left() {
    let mut cores = small();
    assert_eq!(cores.give(Mix), Some(0));
    cores.reset();
    assert_eq!((cores.give(Mix), cores.give(Mix)), (Some(0), Some(1)));
}

#[test]
#[should_panic(expected = "AIV core 3")]
fn an_answer_of_a_core_that_has_no_block_is_a_mistake_of_the_scheduler() {
    small().answer(Aiv, 3);
}

#[test]
fn scheduler_threads_share_the_clusters_evenly_and_a_cluster_has_one() {
    for (arch, schedulers) in [(Arch::A2a3, 3), (Arch::A5, 4), (Arch::A2a3, 1)] {
        let counts = arch.cores();
        let cores = Cores::new(counts, schedulers);
        let mut clusters = vec![0; schedulers];
        for cluster in 0..counts.aic {
            let scheduler = cores.scheduler(Aic, cluster);
            assert_eq!(cores.scheduler(Mix, cluster), scheduler);
            assert_eq!(
                [0, 1].map(|at| cores.scheduler(Aiv, 2 * cluster + at)),
                [scheduler; 2]
            );
            clusters[usize::from(scheduler)] += 1;
        }
        assert_eq!(
            clusters,
            vec![usize::from(counts.aic) / schedulers; schedulers]
        );
    }
    assert_eq!(Cores::new(Arch::A2a3.cores(), 0).schedulers(), 1);
    assert_eq!(Cores::new(Arch::A2a3.cores(), 99).schedulers(), 24);
}
