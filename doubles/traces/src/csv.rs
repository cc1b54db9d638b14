//! Writer of RAPIDS RMM's allocation log.

use std::fmt::Write;

use plimsoll_pool::trace::{Trace, TraceStep};

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// The trace as RAPIDS RMM's log, with the step's number for the time and the block's number for the pointer.
pub fn csv(trace: &Trace) -> String {
    let mut text = String::from(HEADER);
    text.push('\n');
    let mut sizes = vec![0; usize::try_from(trace.blocks()).unwrap_or_default()];
    for (time, step) in trace.steps().iter().enumerate() {
        let (action, block, stream) = match *step {
            TraceStep::Allocate { block, size, stream } => {
                if let Some(place) = usize::try_from(block).ok().and_then(|at| sizes.get_mut(at)) {
                    *place = size;
                }
                ("allocate", block, stream)
            }
            TraceStep::Free { block, stream } => ("free", block, stream),
        };
        let size = usize::try_from(block).ok().and_then(|at| sizes.get(at)).copied();
        // Writing to a string cannot fail. Numbers from 1: a null pointer is no block.
        let _ = writeln!(
            text,
            "1,{time},{action},{:#x},{},{:#x}",
            u64::from(block) + 1,
            size.unwrap_or_default(),
            stream.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let text =
            "1,0,allocate,0x1,512,0x0\n1,1,allocate,0x2,7,0x3\n1,2,free,0x1,512,0x0\n1,3,free,0x2,7,0x3\n";
        let trace = Trace::from_csv(format!("{HEADER}\n{text}").as_bytes()).unwrap();
        assert_eq!(csv(&trace), format!("{HEADER}\n{text}"));
        assert_eq!(Trace::from_csv(csv(&trace).as_bytes()), Ok(trace));
    }
}
