import com.fasterxml.jackson.databind.ObjectMapper;
import conch.ApiClient;
import conch.ApiException;
import conch.api.ModelsApi;
import conch.api.TasksApi;
import conch.model.ClassifyRequest;
import conch.model.ClassifyResponse;
import conch.model.EmbeddingsRequest;
import conch.model.EntitiesRequest;
import conch.model.FlawModel;
import conch.model.Label;
import conch.model.ModelCard;
import conch.model.Problem;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Calls a gateway through the generated client, and prints what came back as JSON. */
public final class Call {
  private static final ObjectMapper JSON = new ObjectMapper();

  private static ApiClient as(String url, String key) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
    return client;
  }

  private static ClassifyResponse ask(TasksApi by, String model, String... texts) throws ApiException {
    return by.classify(new ClassifyRequest().model(model).inputs(List.of(texts)).topK(2));
  }

  private static Map<String, Object> told(TasksApi by, String model, String... texts) throws Exception {
    for (; ; ) {
      try {
        ask(by, model, texts);
      } catch (ApiException refused) {
        Problem problem = JSON.readValue(refused.getResponseBody(), Problem.class);
        List<String> pointers = new ArrayList<>();
        for (FlawModel flaw : problem.getErrors() == null ? List.<FlawModel>of() : problem.getErrors()) {
          pointers.add(flaw.getPointer());
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("status", refused.getCode());
        told.put("code", problem.getCode());
        told.put("pointers", pointers);
        told.put("waits", refused.getResponseHeaders().firstValueAsLong("retry-after").orElse(0) >= 1);
        told.put("named", problem.getRequestId().equals(refused.getResponseHeaders().firstValue("x-request-id").orElse("")));
        return told;
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    ApiClient client = as(arguments[0], arguments[1]);
    TasksApi tasks = new TasksApi(client);
    Map<String, Object> outcome = new LinkedHashMap<>();
    outcome.put("labels", ask(tasks, "words", "a", "b").getResults().get(1).getLabels().stream().map(Label::getLabel).toList());
    outcome.put("models", new ModelsApi(client).listModels().getData().stream().map(ModelCard::getId).sorted().toList());
    Object vector = tasks.embeddings(new EmbeddingsRequest().model("vectors").input("a")).getData().get(0).getEmbedding();
    outcome.put("dimensions", ((List<?>) vector).size());
    EntitiesRequest body = new EntitiesRequest().model("spans").inputs(List.of("a")).offsets(EntitiesRequest.OffsetsEnum.UTF16);
    outcome.put("entities", tasks.entities(body).getResults().get(0).getEntities().size());
    outcome.put("invalid", told(tasks, "words"));
    outcome.put("unauthenticated", told(new TasksApi(as(arguments[0], "nobody's")), "words", "a"));
    outcome.put("limited", told(new TasksApi(as(arguments[0], arguments[2])), "words", "a"));
    outcome.put("unavailable", told(tasks, "brief", "a"));
    System.out.println(JSON.writeValueAsString(outcome));
  }
}
