# Writes report.css and report.js into a C++ file as strings: cmake -DFROM=folder -DTO=file -P embed.cmake.
# Why strings and not files beside the program: the page, and the program that makes it, need nothing but themselves.
set(code "#include \"models/report/page.h\"\n\nnamespace trencadis {\n")
foreach(pair kReportCss:report.css kReportJs:report.js)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 file)
  file(READ ${FROM}/${file} text)
  string(APPEND code "const char* const ${name} = R\"EMBEDDED(${text})EMBEDDED\";\n")
endforeach()
file(WRITE ${TO} "${code}}  // namespace trencadis\n")
