//! Lines as the kernel writes them.

use super::{Mapping, parse};

const MAPS: &str = "\
55e0c1a00000-55e0c1a2b000 r-xp 0001f000 fe:01 131                        /opt/a program (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nnonsense
7ffd00100000-7ffd00102000 r-xp 00000000 00:00 0                          [vdso]
";

#[test]
fn files_with_blanks_and_anonymous_memory_are_read() {
    let all = parse(MAPS);
    assert_eq!(all.len(), 4);
    let expected = Mapping {
        addresses: 0x55e0_c1a0_0000..0x55e0_c1a2_b000,
        executable: true,
        offset: 0x1f000,
        inode: 131,
        path: "/opt/a program (deleted)".to_owned(),
    };
    assert_eq!(all[0], expected);
    assert_eq!(all[2].path, "");
    let code: Vec<bool> = all.iter().map(Mapping::has_code).collect();
    assert_eq!(code, [true, false, false, true]);
}
