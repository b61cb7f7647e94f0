// Rules and passes of users as rows of the pipeline.
#pragma once

#include <string_view>

#include "compiler/compilation.h"
#include "compiler/pipeline.h"

namespace stridec {

// Checks the rules, that each pass is placed after a pass on the graph, and with --frozen that the tuning
// database has the hashes of all. Throws Error.
void check_extensions(const CompileOptions& options);

// Adds a row "rewrites" for the rules, and a row "pass 1", "pass 2", ... for each pass, after the rows that
// they name. Rows after passes that the pipeline does not have are left out.
void add_extensions(Pipeline& pipeline, const extend::Extensions& extensions);

// Whether `name` is that of such a row.
bool is_extension_row(std::string_view name);

// Rewrites the graph by the rules that run after import, as the pipeline does.
std::vector<extend::RuleEffect> apply_rules(graph::Graph& graph, const extend::Extensions& extensions);

// Names this build, for what was checked by it.
std::string this_build();

}  // namespace stridec
