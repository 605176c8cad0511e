//! Names of platforms, both ways, and the help a wrong one gets.

use super::*;

#[test]
fn every_platform_is_parsed_from_the_name_it_shows() {
    for platform in Platform::ALL {
        assert_eq!(platform.to_string().parse(), Ok(platform));
    }
    assert_eq!("a2a3sim".parse(), Ok(Platform::Sim(Arch::A2a3)));
}

#[test]
fn a_slip_gets_the_nearest_name_and_nonsense_gets_the_list_only() {
    let nearest = |text: &str| text.parse::<Platform>().unwrap_err().nearest();
    assert_eq!(nearest("sin"), Some("sim"));
    assert_eq!(nearest("A5SIM"), Some("a5sim"));
    assert_eq!(nearest("a2a"), Some("a2a3"));
    assert_eq!(nearest("cuda-11"), None);
    assert_eq!(nearest(""), None);
}

#[test]
fn core_counts_are_those_of_the_architecture() {
    assert_eq!(
        Platform::A2a3.arch().cores(),
        CoreCounts { aic: 24, aiv: 48 }
    );
    assert_eq!(
        Platform::Sim(Arch::A5).arch().cores(),
        CoreCounts { aic: 36, aiv: 72 }
    );
}
