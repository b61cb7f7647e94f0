#include "compiler/codegen/cpu/clang.h"

#include <algorithm>
#include <chrono>

#include "clang/Basic/Diagnostic.h"
#include "clang/CodeGen/CodeGenAction.h"
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/CompilerInvocation.h"
#include "clang/Frontend/TextDiagnosticPrinter.h"
#include "compiler/base/check.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/llvm.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/VirtualFileSystem.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include "llvm/Transforms/Instrumentation/ThreadSanitizer.h"

namespace stridec::codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

bool is_known_cpu(std::string_view cpu) {
  return llvm::X86::parseArchX86({cpu.data(), cpu.size()}, /*Only64Bit=*/true) != llvm::X86::CK_None;
}

// One compilation, on the heap: after a crash, the recovery's clean-up still accesses the instance and its
// streams, when their stack frames would be gone.
struct Compilation {
  std::string name, path;
  std::string_view source;
  const CompileOptions& options;
  CompileTimes times;
  std::string diagnostics;
  bool backend_error = false;
  llvm::raw_string_ostream diagnostic_stream{diagnostics};
  llvm::LLVMContext context;
  clang::CompilerInstance instance;
  clang::EmitLLVMOnlyAction action{&context};

  Compilation(std::string_view name, std::string_view source, const CompileOptions& options)
      : name(name), path("/" + this->name), source(source), options(options) {
    // Without a handler, the context responds to a back-end error (such as bad inline assembly) with exit(1).
    context.setDiagnosticHandlerCallBack(
        [](const llvm::DiagnosticInfo* info, void* self) { static_cast<Compilation*>(self)->report(*info); },
        this);
  }

  void report(const llvm::DiagnosticInfo& info) {
    if (info.getSeverity() > llvm::DS_Warning) return;  // remarks and notes
    if (info.getSeverity() == llvm::DS_Error) backend_error = true;
    llvm::DiagnosticPrinterRawOStream printer(diagnostic_stream);
    diagnostic_stream << (info.getSeverity() == llvm::DS_Error ? "error: " : "warning: ");
    info.print(printer);
    diagnostic_stream << "\n";
  }

  std::vector<std::string> arguments() const {
    std::vector<std::string> out = {
        "-triple", kTriple, "-emit-llvm-only", "-disable-llvm-passes", "-main-file-name", name, "-x",
        options.c ? "c" : "c++", options.c ? "-std=c23" : "-std=c++20",
        "-O" + std::to_string(options.optimize), "-target-cpu", options.cpu, "-tune-cpu", options.tune,
        // 512-bit vectors in the source stay 512-bit, even if the CPU's tuning prefers 256.
        "-mprefer-vector-width=512", "-ffreestanding", "-nostdsysteminc", "-nobuiltininc",
        "-fvisibility=hidden", "-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=none",
        "-vectorize-loops", "-vectorize-slp", "-relaxed-aliasing",
        options.fuse_multiply_add ? "-ffp-contract=fast" : "-ffp-contract=off",
        // No compiler version in the object. Warnings are for the authors of kernels (tests enable -Wall
        // there).
        "-Qn", options.c ? "-Wno-everything" : "-w", "-ferror-limit", "20", path};
    if (options.tell_accesses) out.push_back("-fsanitize=thread");
    // No folder of this machine: tools are told where the sources are.
    if (options.lines)
      out.insert(out.end(), {"-debug-info-kind=line-tables-only", "-dwarf-version=4",
                             "-fdebug-compilation-dir=.", "-fdebug-prefix-map=/="});
    // What C++ does not accept either, and users get wrong: an input that is not const.
    if (options.c)
      out.insert(out.end(), {"-Werror=incompatible-pointer-types",
                             "-Werror=incompatible-pointer-types-discards-qualifiers"});
    else
      out.insert(out.end(), {"-fno-rtti", "-fno-threadsafe-statics"});
    return out;
  }

  std::unique_ptr<llvm::Module> parse() {
    std::vector<std::string> strings = arguments();
    std::vector<const char*> pointers;
    for (const std::string& s : strings) pointers.push_back(s.c_str());

    llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostic_options(new clang::DiagnosticOptions);
    diagnostic_options->ShowPresumedLoc = 1;  // the files that #line names
    auto* printer = new clang::TextDiagnosticPrinter(diagnostic_stream, diagnostic_options.get());
    llvm::IntrusiveRefCntPtr<clang::DiagnosticsEngine> engine(
        new clang::DiagnosticsEngine(new clang::DiagnosticIDs, diagnostic_options, printer));
    auto invocation = std::make_shared<clang::CompilerInvocation>();
    if (!clang::CompilerInvocation::CreateFromArgs(*invocation, pointers, *engine)) return nullptr;
    if (options.c) clang::ProcessWarningOptions(*engine, invocation->getDiagnosticOpts());

    llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> files(new llvm::vfs::InMemoryFileSystem);
    files->addFile(path, 0, llvm::MemoryBuffer::getMemBufferCopy({source.data(), source.size()}, path));
    instance.setInvocation(invocation);
    instance.setDiagnostics(engine.get());
    instance.setVerboseOutputStream(llvm::nulls());  // suppresses "1 error generated."
    instance.setFileManager(new clang::FileManager(clang::FileSystemOptions(), files));
    if (!instance.ExecuteAction(action)) return nullptr;
    return action.takeModule();
  }

  std::unique_ptr<llvm::TargetMachine> machine() const {
    std::string unused;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, unused);
    llvm::TargetOptions o;
    // Contraction follows the flags that the front end sets on each operation, so pragmas in the source work.
    o.AllowFPOpFusion = llvm::FPOpFusion::Standard;
    o.UseInitArray = true;
    o.FunctionSections = true;
    o.DataSections = true;
    const auto level = options.optimize >= 3   ? llvm::CodeGenOptLevel::Aggressive
                       : options.optimize == 0 ? llvm::CodeGenOptLevel::None
                                               : llvm::CodeGenOptLevel::Default;
    return std::unique_ptr<llvm::TargetMachine>(
        target->createTargetMachine(kTriple, options.cpu, "", o, llvm::Reloc::PIC_, std::nullopt, level));
  }

  void run_passes(llvm::Module& module, llvm::TargetMachine& target) const {
    static constexpr const llvm::OptimizationLevel* kLevels[] = {
        &llvm::OptimizationLevel::O0, &llvm::OptimizationLevel::O1, &llvm::OptimizationLevel::O2,
        &llvm::OptimizationLevel::O3};
    module.setDataLayout(target.createDataLayout());
    llvm::PipelineTuningOptions tuning;
    tuning.LoopVectorization = tuning.SLPVectorization = options.optimize >= 2;
    tuning.LoopUnrolling = tuning.LoopInterleaving = options.optimize >= 2;
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(&target, tuning);
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);
    const llvm::OptimizationLevel level = *kLevels[options.optimize];
    auto passes = options.optimize == 0 ? builder.buildO0DefaultPipeline(level)
                                        : builder.buildPerModuleDefaultPipeline(level);
    if (options.tell_accesses)
      passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::ThreadSanitizerPass()));
    passes.run(module, modules);
  }

  // Returns false with the reason in `diagnostics`.
  bool run(llvm::CodeGenFileType kind, llvm::SmallVectorImpl<char>& out) {
    const auto now = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    const double start = now();
    std::unique_ptr<llvm::Module> module = parse();
    const double parsed = now();
    if (!module) return false;
    std::unique_ptr<llvm::TargetMachine> target = machine();
    run_passes(*module, *target);
    const double optimized = now();
    llvm::raw_svector_ostream stream(out);
    llvm::legacy::PassManager emitter;
    target->addPassesToEmitFile(emitter, stream, nullptr, kind, /*DisableVerify=*/true);
    emitter.run(*module);
    times = {parsed - start, optimized - parsed, now() - optimized};
    return !backend_error;
  }
};

std::string compile(llvm::CodeGenFileType kind, std::string_view name, std::string_view source,
                    const CompileOptions& options, CompileTimes* times) {
  initialize_llvm();
  STRIDEC_CHECK(is_known_cpu(options.cpu), options.cpu);
  llvm::SmallString<0> out;
  auto compilation = std::make_unique<Compilation>(name, source, options);
  bool ok = false, survived = false;
  {
    const FatalErrorScope fatal_errors(&compilation->diagnostics);
    llvm::CrashRecoveryContext recovery;
    survived = recovery.RunSafely([&] { ok = compilation->run(kind, out); });
  }
  if (times) *times = compilation->times;
  if (survived && ok) return std::string(out.data(), out.size());

  const std::string diagnostics = compilation->diagnostics;
  // After a crash the context still refers to objects on stack frames that are gone: it must not be
  // destroyed.
  if (!survived) compilation.release();
  fail_toolchain("kernel-compilation",
                 cat("the code generated for '", name,
                     survived ? "' does not compile for " : "' crashes the compiler for ", options.cpu),
                 diagnostics);
}

}  // namespace

std::string compile_to_object(std::string_view name, std::string_view source, const CompileOptions& options,
                              CompileTimes* times) {
  return compile(llvm::CodeGenFileType::ObjectFile, name, source, options, times);
}

std::string compile_to_assembly(std::string_view name, std::string_view source,
                                const CompileOptions& options) {
  return compile(llvm::CodeGenFileType::AssemblyFile, name, source, options, nullptr);
}

std::string object_key(std::string_view source, const CompileOptions& options) {
  const std::string all =
      cat(STRIDEC_COMPILER " ", options.cpu, " ", options.tune, " O", options.optimize,
          options.fuse_multiply_add ? "" : " unfused", options.tell_accesses ? " telling" : "",
          options.c ? " C" : "", options.lines ? " lines" : "", "\n", source);
  return sha256(all.data(), all.size());
}

std::string cached_object(const ObjectCache& cache, std::string_view name, std::string_view source,
                          const CompileOptions& options, std::atomic<bool>* stored) {
  const std::string key = object_key(source, options);
  if (std::optional<std::string> object = cache.find(key)) return std::move(*object);
  std::string object = compile_to_object(name, source, options);
  cache.store(key, object);
  if (stored) *stored = true;
  return object;
}

std::vector<std::string> cpu_features(std::string_view cpu) {
  std::vector<std::string> names;
  if (!is_known_cpu(cpu)) return names;
  llvm::SmallVector<llvm::StringRef, 64> features;
  llvm::X86::getFeaturesForCPU({cpu.data(), cpu.size()}, features);
  for (llvm::StringRef f : features) names.push_back(f.str());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace stridec::codegen
