# cmake -DIN=raw.ptx -DOUT=file.ptx -P ptx.cmake: PTX as it is embedded. Its version is what the instructions of the kernels need, not what the
# compiler knows, so that older drivers take it. Comments and indentation, a third of the text, are left out.
file(READ ${IN} text)
string(REGEX REPLACE "//[^\n]*" "" text "${text}")
string(REGEX REPLACE "\\.version [0-9.]+" ".version 6.3" text "${text}")
string(REGEX REPLACE "[ \t]+" " " text "${text}")
string(REGEX REPLACE "\n[ \n]+" "\n" text "${text}")
string(REGEX REPLACE "([,:{]) " "\\1" text "${text}")
file(WRITE ${OUT} "${text}")
