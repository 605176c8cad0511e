//! Text in XML.

use super::*;

#[test]
fn markup_and_control_characters_are_escaped() {
    assert_eq!(
        escaped("a<b> & \"c\"\n\td"),
        "a&lt;b&gt; &amp; &quot;c&quot;\n\td"
    );
    assert_eq!(
        escaped("\u{1b}[31mred\0\u{7f}"),
        "\u{fffd}[31mred\u{fffd}\u{fffd}"
    );
    assert_eq!(escaped("µs ∞"), "µs ∞");
}
