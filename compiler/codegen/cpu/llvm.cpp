#include "compiler/codegen/cpu/llvm.h"

#include <mutex>

#include "compiler/base/diagnostic.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/TargetSelect.h"

namespace stridec::codegen {
namespace {

thread_local std::string* fatal_words = nullptr;

}  // namespace

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
    llvm::CrashRecoveryContext::Enable();
    // abort() follows, which the crash recovery catches.
    llvm::install_fatal_error_handler([](void*, const char* reason, bool) {
      if (fatal_words) *fatal_words += std::string("error: ") + reason + "\n";
    });
  });
}

FatalErrorScope::FatalErrorScope(std::string* words) { fatal_words = words; }
FatalErrorScope::~FatalErrorScope() { fatal_words = nullptr; }

void fail_toolchain(std::string code, std::string message, std::string_view output) {
  constexpr size_t kMostLines = 24;
  Diagnostic d{.kind = ErrorKind::kToolchain, .code = std::move(code), .message = std::move(message)};
  while (!output.empty() && d.notes.size() < kMostLines) {
    const size_t end = output.find('\n');
    d.notes.emplace_back(output.substr(0, end));
    output.remove_prefix(end == output.npos ? output.size() : end + 1);
  }
  d.help = "this is a defect of stridec: please report it with the model and the command line";
  throw Error(std::move(d));
}

}  // namespace stridec::codegen

// Stubs for symbols that clang and LLD refer to and stridec omits: LLD initialises every target, clang
// requests the Polly plugin. Without the stubs the archives would pull in all twenty back ends.
llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "no polly", "0", [](llvm::PassBuilder&) {}};
}

#define STRIDEC_NO_TARGET(T)              \
  extern "C" {                            \
  void LLVMInitialize##T##TargetInfo();   \
  void LLVMInitialize##T##TargetInfo() {} \
  void LLVMInitialize##T##Target();       \
  void LLVMInitialize##T##Target() {}     \
  void LLVMInitialize##T##TargetMC();     \
  void LLVMInitialize##T##TargetMC() {}   \
  void LLVMInitialize##T##AsmPrinter();   \
  void LLVMInitialize##T##AsmPrinter() {} \
  void LLVMInitialize##T##AsmParser();    \
  void LLVMInitialize##T##AsmParser() {}  \
  }

STRIDEC_NO_TARGET(AArch64)
STRIDEC_NO_TARGET(AMDGPU)
STRIDEC_NO_TARGET(ARM)
STRIDEC_NO_TARGET(AVR)
STRIDEC_NO_TARGET(BPF)
STRIDEC_NO_TARGET(Hexagon)
STRIDEC_NO_TARGET(Lanai)
STRIDEC_NO_TARGET(LoongArch)
STRIDEC_NO_TARGET(M68k)
STRIDEC_NO_TARGET(MSP430)
STRIDEC_NO_TARGET(Mips)
STRIDEC_NO_TARGET(NVPTX)
STRIDEC_NO_TARGET(PowerPC)
STRIDEC_NO_TARGET(RISCV)
STRIDEC_NO_TARGET(Sparc)
STRIDEC_NO_TARGET(SystemZ)
STRIDEC_NO_TARGET(VE)
STRIDEC_NO_TARGET(WebAssembly)
STRIDEC_NO_TARGET(XCore)
STRIDEC_NO_TARGET(Xtensa)
