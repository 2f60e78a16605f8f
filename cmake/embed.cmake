# cmake -DNAME=... -DOUT=file.c -DIN=file -P embed.cmake: the file's bytes as a C text, `const char NAME[]`.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
