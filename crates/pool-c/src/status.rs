//! What a call returns, and the sentence for it.

use std::ffi::CStr;

/// The codes of `plimsoll_pool.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    OutOfMemory = 1,
    InvalidArgument = 2,
    InvalidDevice = 3,
    NotLive = 4,
}

pub(crate) fn message(code: i32) -> &'static CStr {
    const MESSAGES: [&CStr; 5] = [
        c"no error",
        c"the card, or the budget, has not got that much; plimsoll_pool_stats says what is held",
        c"a pointer is null, or a size is 0 or not that of the structure",
        c"a callback that is needed is missing, or the granule is not a power of two",
        c"the address is not that of a live block of this pool",
    ];
    let known = usize::try_from(code).ok().and_then(|code| MESSAGES.get(code));
    known.unwrap_or(&c"no such status")
}
