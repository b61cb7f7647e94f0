#include "compiler/codegen/cpu/jit.h"

#include <cstring>
#include <mutex>

#include "compiler/codegen/cpu/llvm.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "runtime/image/image.h"

namespace stridec::codegen {
namespace {

[[noreturn]] void fail_load(const std::string& reason) {
  fail_toolchain("jit", "generated code does not load", reason);
}

}  // namespace

struct Jit::Impl {
  // Messages that the session reports in addition to a lookup's error, such as the names of undefined
  // symbols.
  std::mutex mutex;
  std::string reported;
  std::unique_ptr<llvm::orc::LLJIT> jit;

  void check(llvm::Error error) {
    if (!error) return;
    const std::string reason = llvm::toString(std::move(error));
    const std::lock_guard<std::mutex> lock(mutex);
    fail_load(std::exchange(reported, {}) + reason);
  }
  template <class T>
  T take(llvm::Expected<T> value) {
    check(value.takeError());
    return std::move(*value);
  }
};

Jit::Jit() : impl_(std::make_unique<Impl>()) {
  initialize_llvm();
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple("x86_64-unknown-linux-gnu")};
  machine.setRelocationModel(llvm::Reloc::PIC_);
  llvm::orc::LLJITBuilder builder;
  builder.setJITTargetMachineBuilder(machine);
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  impl_->jit = impl_->take(builder.create());
  impl_->jit->getExecutionSession().setErrorReporter([impl = impl_.get()](llvm::Error error) {
    const std::lock_guard<std::mutex> lock(impl->mutex);
    impl->reported += llvm::toString(std::move(error)) + "\n";
  });

  llvm::orc::SymbolMap libc;
  const auto add = [&](const char* name, auto* function) {
    libc[impl_->jit->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(function),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  add("memcpy", &std::memcpy);
  add("memmove", &std::memmove);
  add("memset", &std::memset);
  add("memcmp", &std::memcmp);
  add("stridec_image_size", &stridec_image_size);
  add("stridec_image_decode", &stridec_image_decode);
  impl_->check(impl_->jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(libc))));
}

Jit::~Jit() = default;

void Jit::add_object(std::string_view object) {
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, "object");
  impl_->check(impl_->jit->addObjectFile(std::move(buffer)));
}

void* Jit::lookup(const std::string& symbol) {
  using namespace llvm::orc;
  LLJIT& jit = *impl_->jit;
  const JITDylibSearchOrder order = {{&jit.getMainJITDylib(), JITDylibLookupFlags::MatchAllSymbols}};
  return impl_->take(jit.getExecutionSession().lookup(order, jit.mangleAndIntern(symbol)))
      .getAddress()
      .toPtr<void*>();
}

}  // namespace stridec::codegen
