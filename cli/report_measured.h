// What was measured, for the report: a profile as a roofline, and a trace as a time line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace stridec::cli {

// The end of a finding that the cost model made, which a profile replaces.
inline constexpr const char* kByModel = "by the cost model";

// What `profile` or `bench` prints with --format=json. Throws Error kMalformed if the file is something else.
nlohmann::ordered_json read_profile(const std::string& path);

// Puts the profile's figures into the function of a report that it is of, as "roofline", and the slowest
// kernels in front of what to look at first. Throws Error kDoesNotFit if it is of none of the functions, or
// of another model. `path`: the profile's, for the message.
void add_profile(nlohmann::ordered_json& functions, const nlohmann::ordered_json& profile,
                 const std::string& path);

// A trace of STRIDEC_PROFILE or `profile --trace`, also without its closing bracket: {"threads", "names",
// "slices", "left_out"}. Times in microseconds since the first slice. Throws Error kDoesNotFit if a run is of
// a model that none of the report's functions is of.
nlohmann::ordered_json read_trace(const std::string& path, const nlohmann::ordered_json& functions);

// "86.6 us, 45 % of the time; 73.2 GFLOP/s, 4.1 GB/s; 38 % of its roof (compute)" for a kernel of a roofline.
std::string measured_text(const nlohmann::ordered_json& kernel, double all);

}  // namespace stridec::cli
