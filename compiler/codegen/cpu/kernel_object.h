// What the compiled text of a user's kernel may not contain, whatever the text looks like.
#pragma once

#include <string>
#include <string_view>

namespace stridec::codegen::cpu {

// Names that nothing defines, functions that run when the library is loaded, and variables that calls can
// change: results would depend on earlier runs, and threads would share them. The end of a sentence that
// begins with "the text"; "" if there is nothing of this kind. The object is an ELF file for x86-64, as
// compile_to_object() makes it.
std::string problem_of_kernel_object(std::string_view object);

}  // namespace stridec::codegen::cpu
