//! Modules and kernels in the fake CUDA driver: any image loads, any name is a kernel, and any kernel can be
//! launched.
//!
//! Kernels whose name contains `touch` take a device pointer and a number of bytes. They add one to each of
//! those bytes, and count as work on them. Other kernels do nothing, because the memory that they would
//! access is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_char;

use crate::abi::structs::LaunchConfig;
use crate::abi::{Context, DevicePtr, Function, Host, In, Module, Out, Stream};
use crate::call::driver;
use crate::code::{Code, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, Outcome};
use crate::driver::{Driver, driver};
use crate::operation::Operation;

#[derive(Debug, Default)]
pub(crate) struct Modules {
    loaded: BTreeSet<Module>,
    kernels: BTreeMap<Function, (Module, String)>,
}

impl Driver {
    fn load(&mut self) -> Result<Module, Code> {
        let module = Module(self.new_handle());
        self.modules.loaded.insert(module);
        Ok(module)
    }

    fn kernel(&mut self, module: Module, name: String) -> Result<Function, Code> {
        if !self.modules.loaded.contains(&module) {
            return Err(INVALID_HANDLE);
        }
        let wanted = (module, name);
        let known = self.modules.kernels.iter().find(|(_, kernel)| **kernel == wanted);
        if let Some((function, _)) = known {
            return Ok(*function);
        }
        let function = Function(self.new_handle());
        self.modules.kernels.insert(function, wanted);
        Ok(function)
    }

    fn unload(&mut self, module: Module) -> Outcome {
        self.modules.kernels.retain(|_, (owner, _)| *owner != module);
        if self.modules.loaded.remove(&module) { Ok(()) } else { Err(INVALID_HANDLE) }
    }
}

fn load(module: Out<Module>) -> Outcome {
    let mut driver = driver()?;
    driver.current()?;
    module.set(driver.load()?)
}

fn launch(function: Function, stream: Stream, parameters: In<Host>) -> Outcome {
    let mut driver = driver()?;
    let (_, name) = driver.modules.kernels.get(&function).ok_or(INVALID_HANDLE)?;
    let mut touches = Vec::new();
    if name.contains("touch") {
        let values = parameters.list(2)?;
        let (at, length) = (values[0].read::<DevicePtr>(), values[1].read::<u64>());
        touches.push(at.0..at.0.checked_add(length).ok_or(INVALID_VALUE)?);
    }
    driver.submit(stream, Operation::Kernel { touches })
}

driver! {
    fn cuModuleLoad = "cuModuleLoad" since 2000 (module: Out<Module>, fname: In<c_char>) {
        fname.text()?;
        load(module)
    }

    fn cuModuleLoadData = "cuModuleLoadData" since 2000 (module: Out<Module>, image: Host) {
        let _ = image;
        load(module)
    }

    fn cuModuleLoadDataEx = "cuModuleLoadDataEx" since 2010
        (module: Out<Module>, image: Host, numOptions: u32, options: Host, optionValues: Host)
    {
        let _ = (image, numOptions, options, optionValues);
        load(module)
    }

    fn cuModuleLoadFatBinary = "cuModuleLoadFatBinary" since 2000 (module: Out<Module>, fatCubin: Host) {
        let _ = fatCubin;
        load(module)
    }

    fn cuModuleUnload = "cuModuleUnload" since 2000 (hmod: Module) {
        driver()?.unload(hmod)
    }

    fn cuModuleGetFunction = "cuModuleGetFunction" since 2000
        (hfunc: Out<Function>, hmod: Module, name: In<c_char>)
    {
        let function = driver()?.kernel(hmod, name.text()?)?;
        hfunc.set(function)
    }

    fn cuModuleGetGlobal_v2 = "cuModuleGetGlobal" since 3020
        (dptr: Out<DevicePtr>, bytes: Out<u64>, hmod: Module, name: In<c_char>)
    {
        let _ = (dptr, bytes, hmod, name);
        Err(NOT_FOUND)
    }

    fn cuModuleGetLoadingMode = "cuModuleGetLoadingMode" since 11070 (mode: Out<i32>) {
        mode.set(2)
    }

    fn cuLibraryLoadData = "cuLibraryLoadData" since 12000
        (library: Out<Module>, code: Host, jitOptions: Host, jitOptionsValues: Host, numJitOptions: u32,
         libraryOptions: Host, libraryOptionValues: Host, numLibraryOptions: u32)
    {
        let _ = (code, jitOptions, jitOptionsValues, numJitOptions);
        let _ = (libraryOptions, libraryOptionValues, numLibraryOptions);
        let loaded = driver()?.load()?;
        library.set(loaded)
    }

    fn cuLibraryUnload = "cuLibraryUnload" since 12000 (library: Module) {
        driver()?.unload(library)
    }

    fn cuLibraryGetKernel = "cuLibraryGetKernel" since 12000
        (pKernel: Out<Function>, library: Module, name: In<c_char>)
    {
        let function = driver()?.kernel(library, name.text()?)?;
        pKernel.set(function)
    }

    fn cuLibraryGetModule = "cuLibraryGetModule" since 12000 (pMod: Out<Module>, library: Module) {
        pMod.set(library)
    }

    fn cuKernelGetFunction = "cuKernelGetFunction" since 12000 (pFunc: Out<Function>, kernel: Function) {
        pFunc.set(kernel)
    }

    fn cuFuncGetAttribute = "cuFuncGetAttribute" since 2020 (pi: Out<i32>, attrib: i32, hfunc: Function) {
        let _ = (attrib, hfunc);
        pi.set(0)
    }

    fn cuFuncSetAttribute = "cuFuncSetAttribute" since 9000 (hfunc: Function, attrib: i32, value: i32) {
        let _ = (hfunc, attrib, value);
        Ok(())
    }

    fn cuLaunchKernel / cuLaunchKernel_ptsz = "cuLaunchKernel" since 4000
        (f: Function, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32,
         sharedMemBytes: u32, hStream: Stream, kernelParams: In<Host>, extra: Host)
    {
        let _ = (gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, extra);
        launch(f, hStream, kernelParams)
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz = "cuLaunchKernelEx" since 11060
        (config: In<LaunchConfig>, f: Function, kernelParams: In<Host>, extra: Host)
    {
        let _ = extra;
        launch(f, config.get()?.stream, kernelParams)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor" since 6050
        (numBlocks: Out<i32>, func: Function, blockSize: i32, dynamicSMemSize: usize)
    {
        let _ = (func, blockSize, dynamicSMemSize);
        numBlocks.set(1)
    }

    fn cuCtxResetPersistingL2Cache = "cuCtxResetPersistingL2Cache" since 11000 () {
        driver()?.current().map(drop)
    }

    fn cuCtxGetCacheConfig = "cuCtxGetCacheConfig" since 3020 (pconfig: Out<i32>) {
        driver()?.current()?;
        pconfig.set(0)
    }

    fn cuStreamAddCallback / cuStreamAddCallback_ptsz = "cuStreamAddCallback" since 5000
        (hStream: Stream, callback: Host, userData: Host, flags: u32)
    {
        let _ = (callback, userData, flags);
        driver()?.stream(hStream)?;
        Err(crate::code::NOT_SUPPORTED)
    }

    fn cuCtxGetDevice_v2 = "cuCtxGetDevice" since 13000 (device: Out<i32>, ctx: Context) {
        let driver = driver()?;
        let opened = driver.contexts.open.get(&ctx).ok_or(crate::code::INVALID_CONTEXT)?;
        device.set(i32::try_from(opened.card).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, get, ok, start};
    use crate::code::ILLEGAL_ADDRESS;
    use crate::copy::cuMemcpyDtoH_v2;
    use crate::linear::cuMemAlloc_v2;

    #[test]
    fn the_touching_kernel_adds_one_to_what_it_may_reach() {
        alone("", || {
            start();
            let module = get(|module| cuModuleLoadData(module, Host::new(0)));
            let touch =
                get(|function| cuModuleGetFunction(function, module, In::from_pointer(c"touch".as_ptr())));
            let at = get(|at| cuMemAlloc_v2(at, 4096));
            let launch = |length: u64| {
                let (at, length) = (at.0.to_ne_bytes(), length.to_ne_bytes());
                let parameters = [Host::to(&at), Host::to(&length)];
                let parameters = In::from_pointer(parameters.as_ptr());
                cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, Stream(0), parameters, Host::new(0))
            };
            ok(launch(10));
            ok(launch(5));
            assert_eq!(launch(4097), ILLEGAL_ADDRESS);
            let mut back = [0; 11];
            ok(cuMemcpyDtoH_v2(Host::into(&mut back), at, 11));
            assert_eq!(back, [2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0]);
        });
    }
}
