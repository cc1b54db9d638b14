//! Pool demand of flash attention, exact or estimated.

use plimsoll_pool::demand::Rules;
use plimsoll_pool::demand::attention::Kernel;

use crate::attention::Attention;

use super::Requests;

pub(super) fn flash(rules: Rules, attention: &Attention<'_>, requests: &mut Requests) -> Option<()> {
    let kernel = attention.kernel(rules)?;
    let sizes = attention.call()?.group(rules);
    // what an H200 was seen to do holds for its own kernels
    let known = attention.k.ne(0) == 128 && kernel != Kernel::Tile;
    if known {
        requests.group(&sizes);
    } else {
        requests.estimate(&sizes);
    }
    Some(())
}
