//! Parses the names of cards in flags: `CUDA0`, `ROCm1`, `Vulkan2`.

/// Beginnings of the names that engines give to cards, one for each interface.
pub const CARD_INTERFACES: [&str; 3] = ["CUDA", "ROCm", "Vulkan"];

/// Interface and number of a card by its name: `CUDA0`, `ROCm1`, `Vulkan2`.
pub fn device_number(name: &str) -> Option<(&'static str, usize)> {
    // `CUDA_Host` and `CUDA+1` are no cards.
    let digits =
        |interface| name.strip_prefix(interface).filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    CARD_INTERFACES.into_iter().find_map(|interface| Some((interface, digits(interface)?.parse().ok()?)))
}
