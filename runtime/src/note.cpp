// The note whose fields the packager writes into the finished file. It has its own source file so that no
// code is compiled with its zeros visible. With `volatile`, g++ would place it in the writable data.
#include "stridec/abi.h"

extern "C" {
extern const stridec_abi_note stridec_note __attribute__((visibility("hidden")));
__attribute__((used, retain, section(STRIDEC_ABI_NOTE_SECTION), aligned(8)))
const stridec_abi_note stridec_note = {
    .name_bytes = 12, .desc_bytes = 48, .type = STRIDEC_ABI_VERSION, .name = STRIDEC_ABI_NOTE_NAME};
}
