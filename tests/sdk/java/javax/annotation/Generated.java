package javax.annotation;

/** Stands in for jakarta.annotation-api, which the generated pom.xml gets from Maven Central. */
public @interface Generated {
  String value();

  String comments() default "";
}
