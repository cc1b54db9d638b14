/* Stand-in of cuBLAS 12 on Windows, as far as ggml imports it: products take no time and no memory. */
#define API __declspec(dllexport) int
API cublasCreate_v2(void **handle) {
    static int only;
    return *handle = &only, 0;
}
__declspec(dllexport) const char *cublasGetStatusString(int code) { return (void)code, "status of the stand-in"; }

#define DONE(name) \
    API name(void) { return 0; }
DONE(cublasDestroy_v2) DONE(cublasGemmBatchedEx) DONE(cublasGemmEx) DONE(cublasGemmStridedBatchedEx) DONE(cublasSetMathMode)
DONE(cublasSetStream_v2) DONE(cublasSetWorkspace_v2) DONE(cublasSgemmBatched) DONE(cublasSgemmStridedBatched) DONE(cublasSgemm_v2)
DONE(cublasStrsmBatched)
