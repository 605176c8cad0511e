//! Lists of visible devices that are not the identity, and lists that are none.

use super::*;

#[track_caller]
fn card(list: Option<&str>, logical: u32) -> Result<u32, String> {
    let visible = VisibleDevices::parse(list).map_err(|error| error.to_string())?;
    let physical = visible
        .physical(LogicalId(logical))
        .map_err(|error| error.to_string())?;
    Ok(physical.0)
}

#[test]
fn a_logical_number_is_an_index_into_the_list() {
    assert_eq!(card(Some("6"), 0), Ok(6));
    assert_eq!(card(Some("2,3"), 1), Ok(3));
    assert_eq!(card(Some("3,2"), 1), Ok(2));
    assert_eq!(card(None, 5), Ok(5));
}

#[test]
fn a_malformed_list_is_refused_whole_even_for_its_good_entries() {
    let texts: Vec<String> = ["2,x", "", "2,", "2, 3", "-1", "2,+3", "3,3", "99999999999"]
        .iter()
        .map(|list| card(Some(list), 0).unwrap_err())
        .collect();
    insta::assert_snapshot!(texts.join("\n"), @r#"
    read ASCEND_RT_VISIBLE_DEVICES=`2,x`: entry 1 is `x`, expected card numbers such as 2,3
    read ASCEND_RT_VISIBLE_DEVICES: it is set and empty, so no device is visible; unset it to see all
    read ASCEND_RT_VISIBLE_DEVICES=`2,`: entry 1 is ``, expected card numbers such as 2,3
    read ASCEND_RT_VISIBLE_DEVICES=`2, 3`: entry 1 is ` 3`, expected card numbers such as 2,3
    read ASCEND_RT_VISIBLE_DEVICES=`-1`: entry 0 is `-1`, expected card numbers such as 2,3
    read ASCEND_RT_VISIBLE_DEVICES=`2,+3`: entry 1 is `+3`, expected card numbers such as 2,3
    read ASCEND_RT_VISIBLE_DEVICES=`3,3`: card 3 stands there twice
    read ASCEND_RT_VISIBLE_DEVICES=`99999999999`: entry 0 is `99999999999`, expected card numbers such as 2,3
    "#);
}

#[test]
fn a_number_behind_the_end_of_the_list_is_refused_with_the_list() {
    assert_eq!(
        card(Some("2,3"), 2).unwrap_err(),
        "use device 2: ASCEND_RT_VISIBLE_DEVICES=`2,3` makes 2 visible, numbered from 0"
    );
}
