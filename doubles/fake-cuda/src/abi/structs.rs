//! Structures of `cuda.h` that cross the C interface, laid out as in CUDA 12.

use std::ffi::{c_char, c_void};
use std::fmt::Write;

use super::{Array, DevicePtr, Host, Show, Stream};

/// Shows a structure by some of its fields.
macro_rules! show_fields {
    ($type:ty: $($field:ident),*) => {
        impl Show for $type {
            fn show(&self, succeeded: bool, line: &mut String) {
                line.push('{');
                $(
                    if !line.ends_with('{') {
                        line.push(' ');
                    }
                    self.$field.show(succeeded, line);
                )*
                line.push('}');
            }
        }
    };
}

/// Something that is shown as its name, for its content says nothing.
macro_rules! show_opaque {
    ($($type:ty = $text:literal),*) => { $(
        impl Show for $type {
            fn show(&self, _: bool, line: &mut String) {
                line.push_str($text);
            }
        }
    )* };
}

/// `CUuuid`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uuid(pub(crate) [u8; 16]);

impl Show for Uuid {
    fn show(&self, _: bool, line: &mut String) {
        for byte in self.0 {
            let _ = write!(line, "{byte:02x}");
        }
    }
}

/// `CUmemLocation`. The kind stays a number: a program may pass any.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}
show_fields!(Location: kind, id);

pub(crate) const LOCATION_DEVICE: i32 = 1;
pub(crate) const LOCATION_HOST: i32 = 2;
pub(crate) const LOCATION_HOST_NUMA: i32 = 3;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationProp {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) metadata: Host,
    pub(crate) flags: u64,
}
show_fields!(AllocationProp: kind, handle_types, location, flags);

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}
show_fields!(AccessDesc: location, flags);

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolProps {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) attributes: Host,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}
show_fields!(PoolProps: kind, handle_types, location, max_size);

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy2D {
    pub(crate) from: Copy2DSide,
    pub(crate) to: Copy2DSide,
    pub(crate) width: u64,
    pub(crate) height: u64,
}
show_fields!(Copy2D: from, to, width, height);

/// The source or the destination of a [`Copy2D`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy2DSide {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) memory: u32,
    pub(crate) host: Host,
    pub(crate) device: DevicePtr,
    pub(crate) array: Array,
    pub(crate) pitch: u64,
}
show_fields!(Copy2DSide: x, y, memory, host, device, array, pitch);

/// `CUDA_MEMCPY3D_v2`, and `CUDA_MEMCPY3D_PEER`, where the reserved words are contexts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy3D {
    pub(crate) from: Copy3DSide,
    pub(crate) to: Copy3DSide,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}
show_fields!(Copy3D: from, to, width, height, depth);

/// The source or the destination of a [`Copy3D`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy3DSide {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) level: u64,
    pub(crate) memory: u32,
    pub(crate) host: Host,
    pub(crate) device: DevicePtr,
    pub(crate) array: Array,
    pub(crate) reserved: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}
show_fields!(Copy3DSide: x, y, z, memory, host, device, array, pitch, height);

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}
show_fields!(ArrayDescriptor: width, height, format, channels);

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}
show_fields!(Array3dDescriptor: width, height, depth, format, channels, flags);

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRequirements {
    pub(crate) size: usize,
    pub(crate) alignment: usize,
    pub(crate) reserved: [u32; 4],
}
show_fields!(MemoryRequirements: size, alignment);

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextParams {
    pub(crate) affinity: Host,
    pub(crate) affinities: i32,
    pub(crate) graphics: Host,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Stream,
    pub(crate) attributes: Host,
    pub(crate) attribute_count: u32,
}
show_fields!(LaunchConfig: stream);

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload_stream: Stream,
    pub(crate) failed_node: u64,
    pub(crate) result: i32,
}
show_fields!(InstantiateParams: flags, upload_stream, result);

show_opaque!([u64; 3] = "update", *const c_void = "function", IpcHandle = "ipc", ContextParams = "params", *const c_char = "text");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_cuda_h() {
        assert_eq!(size_of::<AllocationProp>(), 32);
        assert_eq!(size_of::<AccessDesc>(), 12);
        assert_eq!(size_of::<PoolProps>(), 88);
        assert_eq!(size_of::<Copy2D>(), 128);
        assert_eq!(size_of::<Copy3D>(), 200);
        assert_eq!(size_of::<ArrayDescriptor>(), 24);
        assert_eq!(size_of::<Array3dDescriptor>(), 40);
        assert_eq!(size_of::<MemoryRequirements>(), 32);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(size_of::<InstantiateParams>(), 32);
    }
}
