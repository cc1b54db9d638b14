/* The part of cuda.h that the test programs use, under the names of the ABI. Written from the documentation. */
#ifndef PLIMSOLL_TEST_CUDA_H
#define PLIMSOLL_TEST_CUDA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef uint64_t CUmemGenericAllocationHandle;

typedef struct { int type; int id; } CUmemLocation;
typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char flags[8];
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST = 2, CU_MEM_LOCATION_TYPE_HOST_NUMA = 3 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* Every function, once: its result, its name in the ABI, its arguments. */
#define CUDA_FUNCTIONS(F)                                                                                      \
    F(cuInit, (unsigned))                                                                                      \
    F(cuDriverGetVersion, (int *))                                                                             \
    F(cuDeviceGet, (CUdevice *, int))                                                                          \
    F(cuDeviceGetCount, (int *))                                                                               \
    F(cuDeviceGetName, (char *, int, CUdevice))                                                                \
    F(cuDeviceGetAttribute, (int *, int, CUdevice))                                                            \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice))                                                               \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                       \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                \
    F(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice))                                                       \
    F(cuCtxDestroy_v2, (CUcontext))                                                                            \
    F(cuCtxSetCurrent, (CUcontext))                                                                            \
    F(cuCtxSynchronize, (void))                                                                                \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                                   \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                  \
    F(cuMemFree_v2, (CUdeviceptr))                                                                             \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))                                                    \
    F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                          \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t))                                                     \
    F(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int))                             \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                   \
    F(cuMemAddressFree, (CUdeviceptr, size_t))                                                                 \
    F(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))  \
    F(cuMemRelease, (CUmemGenericAllocationHandle))                                                            \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))               \
    F(cuMemUnmap, (CUdeviceptr, size_t))                                                                       \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                  \
    F(cuStreamCreate, (CUstream *, unsigned))                                                                  \
    F(cuStreamDestroy_v2, (CUstream))                                                                          \
    F(cuStreamQuery, (CUstream))                                                                               \
    F(cuStreamSynchronize, (CUstream))                                                                         \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                         \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                                      \
    F(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                 \
    F(cuStreamBeginCapture_v2, (CUstream, int))                                                                \
    F(cuStreamEndCapture, (CUstream, CUgraph *))                                                               \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                               \
    F(cuGraphLaunch, (CUgraphExec, CUstream))                                                                  \
    F(cuGraphExecDestroy, (CUgraphExec))                                                                       \
    F(cuGraphDestroy, (CUgraph))

/* Stops the program with the line and the code of a call that did not give what it should. */
#define EXPECT(code, call)                                                                                     \
    do {                                                                                                       \
        CUresult got_ = (call);                                                                                \
        if (got_ != (code)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got_, (code));           \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)
#define CHECK(call) EXPECT(0, call)

#endif
