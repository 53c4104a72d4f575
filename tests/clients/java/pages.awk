# Makes a class of the Java snippets in the pages of docs/coordination: a method for each page that has one, which takes what the snippet
# names.
BEGIN {
    print "package programs;\n\nimport java.util.LinkedHashMap;\nimport java.util.List;\nimport java.util.Map;"
    print "import redis.clients.jedis.Jedis;\nimport redis.clients.jedis.commands.ProtocolCommand;\nimport redis.clients.jedis.util.SafeEncoder;\n"
    print "final class Pages {"
    print "    interface Page {\n        void run(Jedis jedis, String job, String owner, String order, String token);\n    }\n"
    print "    static final Map<String, Page> ALL = new LinkedHashMap<>();\n"
    print "    static {"
}
/^```java$/ {
    name = FILENAME
    sub(/.*\//, "", name)
    print "        ALL.put(\"" name "\", (jedis, job, owner, order, token) -> {"
    inside = 1
    next
}
inside && /^```$/ {
    print "        });"
    inside = 0
}
inside { print "            " $0 }
END { print "    }\n}" }
