/* bcryptprimitives.dll for Wine 8, which lacks it: Rust's standard library takes random numbers from its
 * ProcessPrng. */
#include <windows.h>

#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length)
{
    const ULONG most = 1u << 30;
    while (length > 0) {
        ULONG piece = length < most ? (ULONG)length : most;
        if (!RtlGenRandom(bytes, piece))
            return FALSE;
        bytes += piece;
        length -= piece;
    }
    return TRUE;
}
