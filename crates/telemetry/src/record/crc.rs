//! CRC-32 as in zip and Ethernet (reflected 0xEDB88320).

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut value: u32 = 0;
    let mut index = 0;
    while index < table.len() {
        let mut rest = value;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ (0xedb8_8320 * (rest & 1));
            bit += 1;
        }
        table[index] = rest;
        value += 1;
        index += 1;
    }
    table
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        let [lowest, ..] = sum.to_le_bytes();
        (sum >> 8) ^ TABLE[usize::from(lowest ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
